"""The load generator: sends the requests of a phase at their times, whatever the answers do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from devcluster.gateway.balancing import LeastOutstanding
from devcluster.gateway.histogram import GatewayMetrics
from devcluster.gateway.records import Record, Recorder
from devcluster.gateway.resolving import Resolve
from devcluster.gateway.schedule import ASSISTANT_MIX, Arrival, Bursts, arrivals_from
from devcluster.gateway.sending import Sender

log = logging.getLogger(__name__)

RESOLVE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Phase:
    """What to send. `seconds` None goes on until the next phase or `stop`."""

    name: str = "load"
    rate_rps: float = 40.0
    seconds: float | None = None
    seed: int = 1
    mix: Mapping[str, float] = field(default_factory=lambda: dict(ASSISTANT_MIX))
    bursts: Bursts = field(default_factory=Bursts)


@dataclass(frozen=True, slots=True)
class Status:
    """`started` is the Unix time of the phase's 0 s, where its first burst period begins."""

    phase: str
    running: bool
    started: float
    rate_rps: float
    total: int
    failed: int
    retries: int
    outstanding: int
    endpoints: tuple[str, ...]


class Generator:
    """Drives one phase at a time. Requests in flight outlive the phase that sent them."""

    def __init__(
        self,
        sender: Sender,
        balancer: LeastOutstanding,
        resolve: Resolve,
        recorder: Recorder,
        metrics: GatewayMetrics,
        bodies: Sequence[bytes],
        timeout_s: float = 10.0,
    ) -> None:
        self._sender, self._balancer, self._resolve = sender, balancer, resolve
        self.recorder, self.metrics = recorder, metrics
        self._bodies, self._timeout_s = bodies, timeout_s
        self._phase = Phase(name="", rate_rps=0.0)
        self._started_loop = self._started = 0.0
        self._driver: asyncio.Task[None] | None = None
        self._flying: set[asyncio.Task[None]] = set()
        self._count = 0

    async def refresh(self) -> None:
        """Resolve the pods once; keeps those that are known when the name cannot be resolved."""
        try:
            self._balancer.update(await self._resolve())
        except OSError as error:
            log.warning("cannot resolve the pods, keeping %s: %s", self._balancer.endpoints, error)

    async def keep_resolving(self) -> None:
        """Resolve for ever; to be run as a task."""
        while True:
            await self.refresh()
            await asyncio.sleep(RESOLVE_EVERY_S)

    async def start(self, phase: Phase) -> None:
        """End the phase that runs, and begin `phase` now. Raises ValueError for a phase that cannot be."""
        next(iter(self._arrivals(phase, 0.0)), None)
        await self.stop()
        self._phase = phase
        self._started_loop, self._started = asyncio.get_running_loop().time(), time.time()
        self._drive(self._arrivals(phase, 0.0))

    async def replay(self, arrivals: Iterable[Arrival], name: str = "replay") -> None:
        """End the phase that runs, and begin sending recorded arrivals now."""
        await self.stop()
        self._phase = Phase(name=name, rate_rps=0.0)
        self._started_loop, self._started = asyncio.get_running_loop().time(), time.time()
        self._drive(arrivals)

    async def set_rate(self, rate_rps: float) -> float:
        """Change the rate of the phase that runs, from now on; its bursts keep their times.

        Returns the Unix time of the change. Raises ValueError when no phase runs.
        """
        if not self.running:
            raise ValueError("no phase runs: start one first")
        phase = replace(self._phase, rate_rps=rate_rps)
        next(iter(self._arrivals(phase, 0.0)), None)
        await self.stop()
        self._phase = phase
        now = asyncio.get_running_loop().time() - self._started_loop
        self._drive(self._arrivals(phase, now))
        return self._started + now

    async def stop(self) -> None:
        """Send nothing more; requests in flight go on."""
        if self._driver is not None:
            self._driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._driver
            self._driver = None

    async def sent_all(self) -> None:
        """Wait until the phase has sent its last request."""
        if self._driver is not None:
            await self._driver

    async def drain(self) -> None:
        """Wait until the phase has ended and its last request is answered."""
        await self.sent_all()
        while self._flying:
            await asyncio.wait(self._flying)

    @property
    def running(self) -> bool:
        return self._driver is not None and not self._driver.done()

    def status(self) -> Status:
        return Status(
            phase=self._phase.name,
            running=self.running,
            started=self._started,
            rate_rps=self._phase.rate_rps if self.running else 0.0,
            total=self.recorder.total,
            failed=self.recorder.failed,
            retries=self.recorder.retries,
            outstanding=len(self._flying),
            endpoints=self._balancer.endpoints,
        )

    @staticmethod
    def _arrivals(phase: Phase, start_s: float) -> Iterable[Arrival]:
        for arrival in arrivals_from(
            start_s, rate_rps=phase.rate_rps, seed=phase.seed, mix=phase.mix, bursts=phase.bursts
        ):
            if phase.seconds is not None and arrival.at_s >= phase.seconds:
                return
            yield arrival

    def _drive(self, arrivals: Iterable[Arrival]) -> None:
        self._driver = asyncio.create_task(self._send_all(arrivals))

    async def _send_all(self, arrivals: Iterable[Arrival]) -> None:
        loop = asyncio.get_running_loop()
        for arrival in arrivals:
            due = self._started_loop + arrival.at_s
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            body = self._bodies[self._count % len(self._bodies)]
            task = asyncio.create_task(self._send(arrival, due, body))
            self._count += 1
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)

    async def _send(self, arrival: Arrival, due: float, body: bytes) -> None:
        scheduled, phase = self._started + arrival.at_s, self._phase.name
        self.metrics.outstanding.inc()
        outcome = await self._sender.post(f"/v2/models/{arrival.model}/infer", body, due + self._timeout_s)
        self.metrics.outstanding.dec()
        record = Record(
            number=self.recorder.total,
            phase=phase,
            model=arrival.model,
            scheduled=scheduled,
            sent=outcome.sent,
            latency_s=max(0.0, outcome.ended - scheduled),
            status=outcome.status,
            pod=outcome.pod,
            retries=outcome.retries,
            error=outcome.error,
        )
        self.recorder.add(record)
        self.metrics.observe(record)
