"""The story of a run: as found, repaired, doubled. Every phase waits on what is seen, within a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from demo.gateway_client import GatewayClient
from demo.goals import (
    CONFIRM_S,
    NOISY_MS,
    SLO_MS,
    seconds_to_slo_met,
    send_lateness_ms,
    within,
    worst_variant_ms,
)
from demo.probe import Probe
from demo.run_data import Window, WindowName
from demo.watching import Watcher, recent_records

PERIOD_S = 20.0
#: the operator acts on a minute of evidence from after its last action: silence for two of them is its last word
QUIET_S = 120.0
#: requests are recorded when they end; by then those of a window that met the SLO have ended
STRAGGLERS_S = 3.0


class MachineTooNoisyError(Exception):
    """The sleeping probe woke too late in a phase and in its repetition: its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rates in requests per second, times in seconds; windows are whole burst periods of 20 s."""

    rate_rps: float = 40.0
    doubled_rps: float = 80.0
    seed: int = 1
    warm_up_s: float = 40.0
    window_s: float = 120.0
    diagnosis_limit_s: float = 120.0
    repair_limit_s: float = 480.0
    quiet_limit_s: float = 240.0
    settle_limit_s: float = 300.0


QUICK = Plan(warm_up_s=40, window_s=60, repair_limit_s=300, quiet_limit_s=60, settle_limit_s=120)


@dataclass(slots=True)
class Progress:
    """How far the run came; filled in as it goes, so that a run that breaks off can still be reported."""

    windows: dict[WindowName, Window] = field(default_factory=dict)
    auto_at: float | None = None
    step_at: float | None = None
    settle_seconds: float | None = None


@dataclass(slots=True)
class Story:
    """Runs the phases. `switch_to_auto` returns the Unix time of the switch; `say` tells people."""

    plan: Plan
    gateway: GatewayClient
    watcher: Watcher
    probe: Probe
    switch_to_auto: Callable[[], Awaitable[float]]
    say: Callable[[str], None]
    progress: Progress = field(default_factory=Progress)
    _load_began: float = 0.0

    async def run(self) -> Progress:
        """All phases. Raises MachineTooNoisyError; a goal that is missed does not stop the run."""
        plan = self.plan
        self._enter("warm-up", f"{plan.rate_rps:g} requests/s with bursts, mode Observe")
        self._load_began = await self.gateway.start("load", plan.rate_rps, plan.seed)
        await self._sleep_until(self._load_began + plan.warm_up_s)
        await self._measure(WindowName.BASELINE, "as found: measuring")
        await self._wait(lambda: bool(self.watcher.bottlenecks), plan.diagnosis_limit_s)
        await self._repair()
        await self._measure(WindowName.TUNED, "repaired: measuring at the same traffic")
        await self._double()
        self._enter("draining", "no new requests; waiting for the last answers")
        await self.gateway.drain()
        return self.progress

    async def _repair(self) -> None:
        auto_at = self.progress.auto_at = await self.switch_to_auto()
        self._enter("repair", "switched to Auto: the operator acts")
        limit = auto_at + self.plan.repair_limit_s + CONFIRM_S + STRAGGLERS_S
        found: float | None = None
        while found is None and time.time() < limit:
            await asyncio.sleep(2)  # ends with what was measured or the clock: there is no event to wait for
            found = seconds_to_slo_met(self.gateway.records, auto_at, time.time() - STRAGGLERS_S)
        self.say(
            f"SLO met and confirmed after {found:.0f} s" if found else "the SLO was not met in time: going on"
        )
        await self._wait(lambda: not self.watcher.changing, self.plan.quiet_limit_s)

    async def _double(self) -> None:
        await self._sleep_until(self._next_period())
        step_at = self.progress.step_at = await self.gateway.set_rate(self.plan.doubled_rps)
        self._enter("step", f"traffic doubled to {self.plan.doubled_rps:g} requests/s")
        limit = step_at + self.plan.settle_limit_s
        await self._wait(
            lambda: self._next_period() + PERIOD_S > limit or self._settled(step_at), self.plan.settle_limit_s
        )
        await self._measure(WindowName.DOUBLED, "doubled: measuring")

    def _settled(self, step_at: float) -> bool:
        """Whether the operator has had time to act and has nothing more to do, and the last 60 s look good."""
        end = time.time() - STRAGGLERS_S
        if self.watcher.changing or end - QUIET_S < max(step_at, self.watcher.last_decision_at):
            return False
        recent = recent_records(self.gateway.records, end - CONFIRM_S)
        p99 = worst_variant_ms(within(recent, Window(end - CONFIRM_S, end)))
        return p99 is not None and p99 <= SLO_MS

    async def _measure(self, name: WindowName, words: str) -> None:
        """Count whole periods from the next on; once more when the machine was too noisy."""
        first_start: float | None = None
        for repeated in (False, True):
            start = self._next_period()
            first_start = first_start or start
            if name is WindowName.DOUBLED and self.progress.step_at is not None:
                self.progress.settle_seconds = round(first_start - self.progress.step_at, 1)
            self._enter(name.value, f"{words} for {self.plan.window_s:g} s")
            end = start + self.plan.window_s
            await self._sleep_until(end + 1)
            lateness = self.probe.p99_ms(start, end)
            if lateness is None:
                raise MachineTooNoisyError(
                    f"{name.value}: the sleeping probe said nothing for {self.plan.window_s:g} s"
                )
            sends = send_lateness_ms(within(self.gateway.records, Window(start, end))) or 0.0
            window = self.progress.windows[name] = Window(start, end, lateness, sends, repeated)
            if window.lateness_ms <= NOISY_MS:
                return
            late = f"{name.value}: the probe woke up {lateness:.1f} ms late, requests left {sends:.1f} ms late (p99)"
            self.say(f"machine too noisy in {late}")
        raise MachineTooNoisyError(f"{late}; more than {NOISY_MS:g} ms twice")

    def _next_period(self) -> float:
        """The Unix time at which the next burst period begins."""
        elapsed = time.time() - self._load_began
        return self._load_began + (elapsed // PERIOD_S + 1) * PERIOD_S

    def _enter(self, phase: str, words: str) -> None:
        self.watcher.phase = phase
        self.say(f"{phase}: {words}")

    async def _sleep_until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - time.time()))

    async def _wait(self, until: Callable[[], bool], limit_s: float) -> None:
        give_up = time.time() + limit_s
        while not until() and time.time() < give_up:  # noqa: ASYNC110 - what is seen has no event
            await asyncio.sleep(1)
