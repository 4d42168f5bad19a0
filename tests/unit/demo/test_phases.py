"""The story of a run on a clock that tests turn: what waits for what, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from demo import phases
from demo.phases import MachineTooNoisyError, Plan, Story
from demo.run_data import WindowName
from devcluster.gateway.records import Record

pytestmark = pytest.mark.unit

BEGIN = 1_000_000.0


class World:
    """Clock, gateway, watcher and probe in one. `latency_ms(seconds since Auto, seconds since the step)` is the world's
    answer; None means that it has not happened yet.
    """

    def __init__(self, latency_ms: Callable[[float | None, float | None], float]) -> None:
        self.now = BEGIN
        self.latency_ms = latency_ms
        self.records: list[Record] = []
        self.rate = 0.0
        self.auto_at: float | None = None
        self.step_at: float | None = None
        self.phase = ""
        self.bottlenecks: list[tuple[float, str]] = [(BEGIN, "PreprocessStarved")]
        self.changing = False
        self.decides_after_step: float | None = None
        self.noisy: list[bool] = []
        self.told: list[str] = []
        self.late_s = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Time passes, and ten requests a second end at once."""
        end = self.now + seconds
        while self.rate and self.now + 0.1 <= end:
            self.now += 0.1
            latency = self.latency_ms(self._since(self.auto_at), self._since(self.step_at))
            self.records.append(
                Record(
                    len(self.records),
                    "load",
                    "assistant-small",
                    self.now,
                    self.now + self.late_s,
                    latency / 1000,
                    200,
                    "a",
                )
            )
        self.now = end

    @property
    def last_decision_at(self) -> float:
        """One decision, so many seconds after the step."""
        if self.step_at is None or self.decides_after_step is None:
            return 0.0
        at = self.step_at + self.decides_after_step
        return at if at <= self.now else 0.0

    def _since(self, at: float | None) -> float | None:
        return None if at is None else self.now - at

    async def start(self, name: str, rate_rps: float, seed: int) -> float:
        self.rate = rate_rps
        return self.now

    async def set_rate(self, rate_rps: float) -> float:
        self.rate, self.step_at = rate_rps, self.now
        return self.now

    async def drain(self) -> None:
        self.rate = 0.0

    async def switch_to_auto(self) -> float:
        self.auto_at = self.now
        return self.now

    def p99_ms(self, start: float, end: float) -> float | None:
        return 40.0 if self.noisy and self.noisy.pop(0) else 3.0


async def told(world: World, monkeypatch: pytest.MonkeyPatch, plan: Plan | None = None) -> phases.Progress:
    monkeypatch.setattr(phases, "time", SimpleNamespace(time=world.time))
    monkeypatch.setattr(phases, "asyncio", SimpleNamespace(sleep=world.sleep))
    fake: object = world
    story = Story(plan or Plan(), fake, fake, fake, world.switch_to_auto, world.told.append)  # type: ignore[arg-type]
    return await story.run()


def good(auto: float | None, step: float | None) -> float:
    """700 ms as found; repaired 100 s after Auto; 400 ms for 50 s after the step."""
    if auto is None or auto < 100:
        return 700
    return 400 if step is not None and step < 50 else 250


async def test_windows_are_whole_periods_in_the_order_of_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = await told(World(good), monkeypatch)
    assert list(progress.windows) == [WindowName.BASELINE, WindowName.TUNED, WindowName.DOUBLED]
    for window in progress.windows.values():
        assert window.seconds == 120
        assert (window.start - BEGIN) % 20 == pytest.approx(0, abs=1e-6)
    baseline, tuned, doubled = progress.windows.values()
    assert progress.auto_at is not None
    assert progress.step_at is not None
    assert baseline.end <= progress.auto_at < tuned.start < tuned.end <= progress.step_at < doubled.start


async def test_the_repaired_window_begins_when_the_slo_was_met_and_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = await told(World(good), monkeypatch)
    assert progress.auto_at is not None
    # good from 100 s on, 60 s of it, 60 s of confirmation, 3 s for stragglers, then the next period and its wait
    assert 223 <= progress.windows[WindowName.TUNED].start - progress.auto_at <= 223 + 2 + 20


async def test_the_doubled_window_begins_once_the_operator_had_its_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = await told(World(good), monkeypatch)
    # silent for 120 s, good for the last 60 of them, stragglers: 123 s; the next period begins at 140 s after the step
    assert progress.settle_seconds == pytest.approx(140, abs=0.2)


async def test_a_decision_after_the_step_is_given_time_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    world.decides_after_step = 90.0
    progress = await told(world, monkeypatch)
    # 90 + 120 + 3 s: the next period begins at 220
    assert progress.settle_seconds == pytest.approx(220, abs=0.2)


async def test_a_server_that_never_settles_is_measured_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lambda auto, step: 900)
    progress = await told(world, monkeypatch)
    assert progress.settle_seconds is not None
    assert 280 <= progress.settle_seconds <= 300
    assert "the SLO was not met in time: going on" in world.told


async def test_the_traffic_is_doubled_at_the_start_of_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    progress = await told(world, monkeypatch)
    assert progress.step_at is not None
    assert (progress.step_at - BEGIN) % 20 == pytest.approx(0, abs=1e-6)
    assert world.rate == 0


async def test_a_noisy_window_is_measured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    world.noisy = [True, False]
    progress = await told(world, monkeypatch)
    baseline = progress.windows[WindowName.BASELINE]
    assert baseline.repeated
    assert baseline.start - BEGIN >= 60 + 120
    assert not progress.windows[WindowName.TUNED].repeated


async def test_a_machine_that_stays_noisy_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    world.noisy = [True, True]
    with pytest.raises(MachineTooNoisyError, match=r"baseline: the probe woke up 40.0 ms late"):
        await told(world, monkeypatch)
    assert world.auto_at is None


async def test_late_sends_are_noise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    world.late_s = 0.05
    with pytest.raises(MachineTooNoisyError, match=r"requests left 50.0 ms late"):
        await told(world, monkeypatch)


async def test_a_repeated_doubled_window_does_not_lengthen_the_settling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(good)
    world.noisy = [False, False, True, False]
    progress = await told(world, monkeypatch)
    assert progress.windows[WindowName.DOUBLED].repeated
    assert progress.settle_seconds == pytest.approx(140, abs=0.2)


async def test_nothing_is_measured_while_a_change_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(good)
    world.changing = True
    progress = await told(world, monkeypatch, Plan(quiet_limit_s=200))
    assert progress.auto_at is not None
    # it never ends here, so the limit does: 223 s + 200 s
    assert progress.windows[WindowName.TUNED].start - progress.auto_at >= 423
