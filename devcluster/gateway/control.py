"""The gateway's HTTP faces: the control API for demo and tests, and the page that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devcluster.gateway.generator import Generator, Phase
from devcluster.gateway.records import FIELDS, as_row
from devcluster.gateway.schedule import ASSISTANT_MIX, Bursts

Rate = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]


class BurstsIn(BaseModel):
    """Bursts as JSON; factor 1 is steady traffic."""

    model_config = ConfigDict(extra="forbid")
    period_s: float = 20.0
    burst_s: float = 5.0
    factor: float = 1.6
    start_s: float = 10.0


class PhaseIn(BaseModel):
    """A phase as JSON."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(default="load", max_length=100)
    rate: Rate
    seconds: Annotated[float, Field(gt=0)] | None = None
    seed: int = 1
    mix: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=lambda: dict(ASSISTANT_MIX))
    burst: BurstsIn = Field(default_factory=BurstsIn)

    def phase(self) -> Phase:
        return Phase(
            self.name, self.rate, self.seconds, self.seed, self.mix, Bursts(**self.burst.model_dump())
        )


class RateIn(BaseModel):
    """A new rate in requests per second."""

    model_config = ConfigDict(extra="forbid")
    rate: Rate


def control_app(generator: Generator) -> web.Application:
    """POST /phase, POST /rate, POST /stop, GET /status, GET /records?since=N, GET /healthz; errors are JSON
    `{"error": …}` with status 400.
    """

    async def phase(request: web.Request) -> web.Response:
        await generator.start(PhaseIn.model_validate_json(await request.read()).phase())
        return web.json_response(asdict(generator.status()))

    async def rate(request: web.Request) -> web.Response:
        changed = await generator.set_rate(RateIn.model_validate_json(await request.read()).rate)
        return web.json_response({**asdict(generator.status()), "changed": changed})

    async def stop(request: web.Request) -> web.Response:
        await generator.stop()
        return web.json_response(asdict(generator.status()))

    async def status(request: web.Request) -> web.Response:
        return web.json_response(asdict(generator.status()))

    async def records(request: web.Request) -> web.Response:
        found = generator.recorder.since(int(request.query.get("since", "0")))
        following = found[-1].number + 1 if found else generator.recorder.total
        rows = [as_row(record) for record in found]
        return web.json_response({"fields": FIELDS, "records": rows, "next": following})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application(middlewares=[_errors_as_json])
    app.add_routes(
        [
            web.post("/phase", phase),
            web.post("/rate", rate),
            web.post("/stop", stop),
            web.get("/status", status),
            web.get("/records", records),
            web.get("/healthz", healthz),
        ]
    )
    return app


def metrics_app(generator: Generator) -> web.Application:
    """GET /metrics in Prometheus' text format."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=generator.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    return app


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(map(str, found['loc'])) or 'body'}: {found['msg']}" for found in error.errors()
        )
        return web.json_response({"error": places}, status=400)
    except ValueError as error:
        return web.json_response({"error": str(error)}, status=400)
