"""The gateway against small servers on the loopback: open loop, balance, failures, control API."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import aiohttp
import pytest
from aiohttp import web

from devcluster.gateway.balancing import LeastOutstanding
from devcluster.gateway.control import control_app
from devcluster.gateway.generator import Generator, Phase
from devcluster.gateway.histogram import GatewayMetrics
from devcluster.gateway.records import Recorder
from devcluster.gateway.resolving import fixed
from devcluster.gateway.schedule import Bursts
from devcluster.gateway.sending import Sender

pytestmark = pytest.mark.unit

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ONE_SECOND = Bursts(period_s=1, burst_s=0.25, factor=1, start_s=0)
FAST = Phase("test", rate_rps=100, seconds=1.0, mix={"m": 1.0}, bursts=ONE_SECOND)


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v2/models/{model}/infer", handler)
    async with listening(app) as address:
        yield address


@contextlib.asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


class Watched(LeastOutstanding):
    """Remembers each choice with what was outstanding when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[tuple[str, dict[str, int]]] = []

    def acquire(self, avoid: Collection[str] = ()) -> str | None:
        before = self.outstanding()
        chosen = super().acquire(avoid)
        if chosen is not None:
            self.choices.append((chosen, before))
        return chosen


@contextlib.asynccontextmanager
async def gateway(
    *targets: str, timeout_s: float = 10.0, balancer: LeastOutstanding | None = None
) -> AsyncIterator[Generator]:
    balancer, recorder = balancer or LeastOutstanding(), Recorder()
    async with Sender(balancer, timeout_s) as sender:
        made = Generator(
            sender,
            balancer,
            fixed(targets, 8000),
            recorder,
            GatewayMetrics("serving"),
            [b"{}"],
            timeout_s,
        )
        await made.refresh()
        yield made
        await made.stop()


async def ok(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({})


def refused_address() -> str:
    """An address on which nothing listens: bound once and closed."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def test_all_requests_of_the_schedule_are_sent_and_recorded() -> None:
    async with serving(ok) as one, serving(ok) as two, gateway(one, two) as load:
        await load.start(FAST)
        await load.drain()
    records = load.recorder.since(0)
    assert len(records) == 100
    assert {record.status for record in records} == {200}
    assert {record.pod for record in records} == {one, two}
    assert all(record.sent >= record.scheduled - 0.001 for record in records)


async def test_every_request_is_published_under_the_pod_it_was_sent_to() -> None:
    async with serving(ok) as one, serving(ok) as two, gateway(one, two) as load:
        await load.start(FAST)
        await load.drain()
    sent = Counter(record.pod for record in load.recorder.since(0))
    page = load.metrics.page().decode()
    published = re.findall(r'gateway_request_duration_seconds_count{.*upstream="(.*)"} (.*)', page)
    assert {pod: float(count) for pod, count in published} == sent


async def test_without_pods_requests_are_published_under_no_upstream() -> None:
    async with gateway() as load:
        await load.start(FAST)
        await load.drain()
    labels = 'model="m",status="503",target_namespace="serving",upstream=""'
    assert f"gateway_request_duration_seconds_count{{{labels}}} 100.0" in load.metrics.page().decode()


async def test_a_request_that_every_pod_refused_is_published_under_the_one_asked_last() -> None:
    address = refused_address()
    async with gateway(address) as load:
        await load.start(FAST)
        await load.drain()
    labels = f'model="m",status="503",target_namespace="serving",upstream="{address}"'
    assert f"gateway_request_duration_seconds_count{{{labels}}} 100.0" in load.metrics.page().decode()


async def test_a_stuck_server_does_not_hold_back_the_schedule() -> None:
    release = asyncio.Event()

    async def stuck(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with serving(stuck) as one, gateway(one) as load:
        await load.start(FAST)
        await load.sent_all()
        assert load.status().outstanding == 100
        release.set()
        await load.drain()
    # The first request waited about as long as the phase took, and its latency says so.
    assert max(record.latency_s for record in load.recorder.since(0)) > 0.5


async def test_a_pod_that_has_not_answered_is_chosen_only_while_no_other_has_fewer_outstanding() -> None:
    """The lame one answers nothing until all are sent, so it holds what it got; how much that is, is the machine's."""
    release = asyncio.Event()

    async def stuck(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    watched = Watched()
    async with serving(ok) as quick, serving(stuck) as lame, gateway(quick, lame, balancer=watched) as load:
        await load.start(FAST)
        await load.sent_all()
        held = watched.outstanding()[lame]
        release.set()
        await load.drain()
    assert len(watched.choices) == 100
    assert all(before[chosen] == min(before.values()) for chosen, before in watched.choices)
    pods = [record.pod for record in load.recorder.since(0)]
    assert held == pods.count(lame) >= 1
    assert pods.count(quick) == 100 - held


async def test_a_refused_connection_is_tried_elsewhere_and_counted() -> None:
    async with serving(ok) as one, gateway(one, refused_address()) as load:
        await load.start(FAST)
        await load.drain()
    assert load.recorder.failed == 0
    assert load.recorder.retries > 0


async def test_when_every_pod_refuses_the_request_fails_with_503() -> None:
    async with gateway(refused_address(), refused_address()) as load:
        await load.start(FAST)
        await load.drain()
    assert {(record.status, record.error) for record in load.recorder.since(0)} == {
        (503, "refused by 2 pods")
    }


async def test_a_broken_connection_is_a_failure_and_never_sent_again() -> None:
    seen = 0

    async def breaks(request: web.Request) -> web.Response:
        nonlocal seen
        seen += 1
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(breaks) as one, gateway(one) as load:
        await load.start(FAST)
        await load.drain()
    assert {record.status for record in load.recorder.since(0)} == {502}
    assert seen == 100


async def test_an_error_status_is_recorded_with_the_servers_words() -> None:
    async def bad(request: web.Request) -> web.Response:
        return web.json_response({"error": "unexpected shape"}, status=400)

    async with serving(bad) as one, gateway(one) as load:
        await load.start(FAST)
        await load.drain()
    first = load.recorder.since(0)[0]
    assert first.status == 400
    assert "unexpected shape" in first.error


async def test_no_answer_in_time_is_a_failure_counted_from_the_scheduled_time() -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(never) as one, gateway(one, timeout_s=0.2) as load:
        await load.start(FAST)
        await load.drain()
        records = load.recorder.since(0)
    assert {record.status for record in records} == {504}
    assert all(record.latency_s >= 0.199 for record in records)


async def test_the_control_api_starts_changes_and_reports() -> None:
    async with (
        serving(ok) as one,
        gateway(one) as load,
        listening(control_app(load)) as control,
        aiohttp.ClientSession(f"http://{control}") as client,
    ):
        phase = {"name": "p", "rate": 50, "mix": {"m": 1}, "burst": {"factor": 1}}
        started = await (await client.post("/phase", json=phase)).json()
        assert (started["phase"], started["running"], started["endpoints"]) == ("p", True, [one])
        changed = await (await client.post("/rate", json={"rate": 200})).json()
        assert changed["rate_rps"] == 200
        assert changed["started"] == started["started"]
        await asyncio.sleep(0.5)
        await client.post("/stop")
        await load.drain()
        found = await (await client.get("/records?since=0")).json()
        assert len(found["records"]) == found["next"] > 25
        rest = await (await client.get(f"/records?since={found['next']}")).json()
        assert (rest["records"], rest["next"]) == ([], found["next"])


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/phase", {"rate": -1}, "rate: "),
        ("/phase", {"rate": 1, "burst": {"factor": 9}}, "factor is 9"),
        ("/phase", {"rate": 1, "speed": 2}, "speed: "),
        ("/rate", {"rate": 5}, "no phase runs"),
    ],
)
async def test_the_control_api_says_what_is_wrong(path: str, body: dict[str, object], told: str) -> None:
    async with (
        gateway("127.0.0.1:1") as load,
        listening(control_app(load)) as control,
        aiohttp.ClientSession(f"http://{control}") as client,
    ):
        answer = await client.post(path, json=body)
        assert answer.status == 400
        assert told in (await answer.json())["error"]
