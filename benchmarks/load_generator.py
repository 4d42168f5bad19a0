"""What the load generator takes of the machine that it measures, and how punctual it is.

A server in a process of its own answers at once, so that all that is counted is the generator's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from aiohttp import web

from benchmarks.figure import Figure
from devcluster.gateway.balancing import LeastOutstanding
from devcluster.gateway.generator import Generator, Phase
from devcluster.gateway.histogram import GatewayMetrics
from devcluster.gateway.prompts import Prompts, infer_bodies
from devcluster.gateway.records import Record, Recorder
from devcluster.gateway.resolving import fixed
from devcluster.gateway.schedule import Bursts
from devcluster.gateway.sending import Sender

RATE_RPS = 80.0


def figures(seconds: float = 10.0) -> Iterator[Figure]:
    """CPU per request and lateness of sending, at the demo's doubled rate."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        records, cpu_s = asyncio.run(_drive(int(ours.recv()), seconds))
    finally:
        server.terminate()
        server.join()
    failed = sum(record.failed for record in records)
    if failed:
        raise RuntimeError(
            f"{failed} of {len(records)} requests to the local server failed: {records[-1].error}"
        )
    late = sorted(record.sent - record.scheduled for record in records)
    subject = "load generator"
    yield Figure(subject, "CPU per request", cpu_s / len(records) * 1e3, "ms", f"{len(records):,} requests")
    yield Figure(subject, f"share of a core at {RATE_RPS:g} requests/s", 100 * cpu_s / seconds, "%")
    yield Figure(subject, "lateness of sending, p99", late[int(len(late) * 0.99)] * 1e3, "ms")


async def _drive(port: int, seconds: float) -> tuple[list[Record], float]:
    balancer, recorder = LeastOutstanding(), Recorder()
    bodies = infer_bodies(Prompts(1).take(64))
    async with Sender(balancer) as sender:
        metrics = GatewayMetrics("bench")
        generator = Generator(sender, balancer, fixed([f"127.0.0.1:{port}"], port), recorder, metrics, bodies)
        await generator.refresh()
        began = time.process_time()
        bursts = Bursts(period_s=seconds, burst_s=seconds / 4, start_s=seconds / 2)
        await generator.start(Phase("bench", RATE_RPS, seconds, bursts=bursts))
        await generator.sent_all()
        await generator.drain()
        return recorder.since(0), time.process_time() - began


def _serve(ready: Connection) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"outputs": []})

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v2/models/{model}/infer", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await web.SockSite(runner, listening).start()
            ready.send(listening.getsockname()[1])
            await asyncio.Event().wait()

    asyncio.run(run())
