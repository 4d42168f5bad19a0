"""`python -m devcluster.gateway`: send load by hand (`run`), or wait for phases (`serve`)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import web

from devcluster.gateway.arrivals import read_arrivals
from devcluster.gateway.balancing import LeastOutstanding
from devcluster.gateway.control import control_app, metrics_app
from devcluster.gateway.generator import Generator, Phase
from devcluster.gateway.histogram import GatewayMetrics
from devcluster.gateway.prompts import Prompts, infer_bodies
from devcluster.gateway.records import Record, Recorder
from devcluster.gateway.resolving import fixed, headless
from devcluster.gateway.schedule import ASSISTANT_MIX, STEADY, Bursts
from devcluster.gateway.sending import Sender


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 fine, 1 a request failed, 2 bad input."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = _parser().parse_args(arguments)
    try:
        return asyncio.run(_serve(options) if options.command == "serve" else _run(options))
    except (ValueError, OSError) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.gateway", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="send one phase, print its figures")
    serve = commands.add_parser("serve", help="wait for phases on the control API")
    for command in (run, serve):
        to = command.add_mutually_exclusive_group(required=True)
        to.add_argument("--targets", nargs="+", metavar="HOST[:PORT]", help="the pods' addresses")
        to.add_argument("--service", help="DNS name of a headless Service, resolved every 2 s")
        command.add_argument(
            "--nameserver", help="ask this DNS server for --service (from outside the cluster)"
        )
        command.add_argument("--port", type=int, default=8000, help="the pods' HTTP port (8000)")
        command.add_argument(
            "--timeout", type=float, default=10.0, help="seconds until a request counts as failed (10)"
        )
        command.add_argument("--records", type=Path, help="write every request to this .jsonl or .csv file")
        command.add_argument("--prompt-seed", type=int, default=1)
        command.add_argument("--target-namespace", default="serving", help="label of the published metrics")
        command.add_argument(
            "--no-histogram", action="store_true", help="do not publish the latency histogram"
        )
        command.add_argument("--metrics-port", type=int, default=9090 if command is serve else 0)
    serve.add_argument("--control-port", type=int, default=8080)
    run.add_argument("--rate", type=float, default=40.0, help="mean requests per second (40)")
    run.add_argument("--seconds", type=float, default=120.0)
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--steady", action="store_true", help="no bursts")
    run.add_argument(
        "--mix", metavar="MODEL=WEIGHT", nargs="+", help="models and their shares (the assistant's)"
    )
    run.add_argument(
        "--replay", type=Path, help="send the arrivals of a .csv or .jsonl file instead of a schedule"
    )
    run.add_argument("--speed", type=float, default=1.0, help="replay so many times as fast")
    return parser


@contextlib.asynccontextmanager
async def _generator(options: argparse.Namespace) -> AsyncIterator[Generator]:
    if options.service:
        resolve = headless(options.service, options.port, options.nameserver)
    else:
        resolve = fixed(options.targets, options.port)
    balancer, recorder = LeastOutstanding(), Recorder(options.records)
    metrics = GatewayMetrics(options.target_namespace, histogram=not options.no_histogram)
    bodies = infer_bodies(Prompts(options.prompt_seed).take(1024))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(recorder.close)
        sender = await stack.enter_async_context(Sender(balancer, options.timeout))
        generator = Generator(sender, balancer, resolve, recorder, metrics, bodies, options.timeout)
        await generator.refresh()
        resolving = asyncio.create_task(generator.keep_resolving())
        stack.callback(resolving.cancel)
        if options.metrics_port:
            await stack.enter_async_context(_listening(metrics_app(generator), options.metrics_port))
        yield generator


@contextlib.asynccontextmanager
async def _listening(app: web.Application, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def _serve(options: argparse.Namespace) -> int:
    async with _generator(options) as generator, _listening(control_app(generator), options.control_port):
        logging.info("control API on port %d, metrics on port %d", options.control_port, options.metrics_port)
        await asyncio.Event().wait()
    return 0


async def _run(options: argparse.Namespace) -> int:
    mix = dict(_weight(text) for text in options.mix) if options.mix else dict(ASSISTANT_MIX)
    async with _generator(options) as generator:
        if options.replay:
            await generator.replay(
                read_arrivals(options.replay, mix=mix, seed=options.seed, speed=options.speed)
            )
        else:
            bursts = STEADY if options.steady else Bursts()
            await generator.start(Phase("run", options.rate, options.seconds, options.seed, mix, bursts))
        await generator.drain()
        records = generator.recorder.since(0, generator.recorder.total)
        print(json.dumps(summary(records), indent=2))
        return 1 if generator.recorder.failed else 0


def _weight(text: str) -> tuple[str, float]:
    model, _, weight = text.partition("=")
    return model, float(weight or 1)


def summary(records: Sequence[Record]) -> dict[str, object]:
    """Count, failures, retries and latency in milliseconds (nearest-rank quantiles), by model and in all."""

    def figures(some: Sequence[Record]) -> dict[str, float]:
        latencies = sorted(record.latency_s * 1000 for record in some)
        quantiles = {
            f"p{q}_ms": round(latencies[math.ceil(q / 100 * len(latencies)) - 1], 1) for q in (50, 90, 99)
        }
        return {"requests": len(some), "failed": sum(record.failed for record in some), **quantiles}

    models = sorted({record.model for record in records})
    found: dict[str, object] = {"all": figures(records)} if records else {}
    found |= {model: figures([record for record in records if record.model == model]) for model in models}
    pods = sorted({record.pod for record in records})
    found["pods"] = {pod: sum(record.pod == pod for record in records) for pod in pods}
    found["retries"] = sum(record.retries for record in records)
    found["late_sends_over_5_ms"] = sum(record.sent - record.scheduled > 0.005 for record in records)
    return found


if __name__ == "__main__":
    sys.exit(main())
