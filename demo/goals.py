"""The goals of the demo: figures from what was seen, and whether they hold. Pure.

A quantile is the nearest rank: the smallest latency that at least that share of the requests did not
exceed. A failed request counts as the time limit, 10 s, in every quantile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from demo.run_data import Decision, Run, Sample, Window, WindowName
from devcluster.gateway.records import Record

SLO_MS = 300.0
FAILED_MS = 10_000.0
CONFIRM_S = 60.0
#: the probe's p99 lateness above which a machine is too noisy for any figure to count
NOISY_MS = 15.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A key of the report and what it must be: text, or bounds (either may be open)."""

    key: str
    says: str
    low: float = -math.inf
    high: float = math.inf
    text: str | None = None

    def holds(self, measured: float | str | None) -> bool:
        """A figure that is missing never holds."""
        if measured is None:
            return False
        if self.text is not None:
            return measured == self.text
        return not isinstance(measured, str) and self.low <= measured <= self.high

    @property
    def wanted(self) -> str:
        if self.text is not None:
            return self.text
        if self.low == self.high:
            return f"{self.low:g}"
        if math.isinf(self.low):
            return f"≤ {self.high:,g}"
        if math.isinf(self.high):
            return f"≥ {self.low:,g}"
        return f"{self.low:,g}–{self.high:,g}"


@dataclass(frozen=True, slots=True)
class Result:
    """A goal with what was measured."""

    goal: Goal
    measured: float | str | None
    met: bool


GOALS: tuple[Goal, ...] = (
    Goal("baseline.p99_ms", "p99 as found, client side, all variants", 600, 1200),
    Goal("baseline.forward_p50_ms", "forward pass meanwhile, median of the worst pod and variant", 110, 130),
    Goal("tuned.p99_ms", "p99 after the repair, worst variant", high=SLO_MS),
    Goal("doubled.p99_ms", "p99 at twice the traffic, worst variant", high=SLO_MS),
    Goal("doubled.rate_rps", "traffic in that window, requests/s", low=80),
    Goal("doubled.settle_seconds", "from the step to the start of that window", high=300),
    Goal("doubled.gpus", "GPUs requested in that phase, at most", 4, 4),
    Goal("failed_requests", "failed requests over the whole run, canaries included", 0, 0),
    Goal("seconds_to_slo_met", "from Auto to the end of the first confirmed 60 s within the SLO", high=480),
    Goal("diagnosis.first_bottleneck", "first bottleneck named", text="PreprocessStarved"),
    Goal(
        "diagnosis.outside_gpu_ms",
        "p99 of the request minus p99 of the forward stage, worst variant",
        low=400,
    ),
    Goal("cpu.before", "share of their CPU limit that the GPU pods use as found", 0.85, 0.95),
    Goal("cpu.after", "the same after the repair, at the same traffic", high=0.8),
    Goal("pool.replicas", "servers without GPUs that preprocessing moved to, at most", 2, 4),
    Goal("pool.network_ms", "what a request takes beyond its time there, mean", high=10),
    Goal("mig_actions", "changes of MIG geometry", 0, 0),
)

Figures = Mapping[str, float | str | None]


def figures(run: Run) -> Figures:
    """The figures of every goal by its key; None where the run did not get that far."""
    found: dict[str, float | str | None] = {goal.key: None for goal in GOALS}
    found["failed_requests"] = sum(record.failed for record in run.records)
    found["mig_actions"] = run.mig_actions
    found["diagnosis.first_bottleneck"] = first_bottleneck(run.bottlenecks)
    if window := run.windows.get(WindowName.BASELINE):
        records = within(run.records, window)
        late = later_half(run.samples, window)
        found["baseline.p99_ms"] = quantile_ms(records, 0.99)
        found["baseline.forward_p50_ms"] = forward_p50_ms(late)
        found["diagnosis.outside_gpu_ms"] = outside_gpu_ms(records, late)
        found["cpu.before"] = mean_of(run.samples, window, lambda sample: sample.cpu)
    if window := run.windows.get(WindowName.TUNED):
        found["tuned.p99_ms"] = worst_variant_ms(within(run.records, window))
        found["cpu.after"] = mean_of(run.samples, window, lambda sample: sample.cpu)
        found["pool.network_ms"] = mean_of(run.samples, window, lambda sample: sample.pool_network_ms)
        found["pool.replicas"] = max((sample.pool_replicas for sample in run.samples), default=None)
    if window := run.windows.get(WindowName.DOUBLED):
        records = within(run.records, window)
        found["doubled.p99_ms"] = worst_variant_ms(records)
        found["doubled.rate_rps"] = len(records) / window.seconds
        found["doubled.settle_seconds"] = run.settle_seconds
        found["doubled.gpus"] = max_gpus(run.samples, run.step_at or window.start, window.end)
    if run.auto_at is not None:
        found["seconds_to_slo_met"] = seconds_to_slo_met(run.records, run.auto_at, run.step_at or run.ended)
    return found


def results(found: Figures) -> tuple[Result, ...]:
    """Every goal with its figure, in the order of the report."""
    return tuple(Result(goal, found[goal.key], goal.holds(found[goal.key])) for goal in GOALS)


def latency_ms(record: Record) -> float:
    """The latency that counts: the time limit for a failed request, however fast it failed."""
    return max(record.latency_s * 1000, FAILED_MS) if record.failed else record.latency_s * 1000


def quantile_ms(records: Iterable[Record], quantile: float) -> float | None:
    """The nearest-rank quantile; None without requests."""
    latencies = sorted(latency_ms(record) for record in records)
    if not latencies:
        return None
    # 0.99 · 200 is 198.00000000000003 in floating point; rounding first keeps the rank 198.
    return latencies[max(0, math.ceil(round(quantile * len(latencies), 9)) - 1)]


def send_lateness_ms(records: Iterable[Record]) -> float | None:
    """p99 of how late requests left: part of their latency that is this machine's, not the server's."""
    late = sorted((record.sent - record.scheduled) * 1000 for record in records)
    return late[math.ceil(round(0.99 * len(late), 9)) - 1] if late else None


def by_variant(records: Iterable[Record]) -> Mapping[str, Sequence[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.model, []).append(record)
    return found


def worst_variant_ms(records: Iterable[Record]) -> float | None:
    """The p99 of the variant whose p99 is highest."""
    found = [quantile_ms(some, 0.99) for some in by_variant(records).values()]
    return max((p99 for p99 in found if p99 is not None), default=None)


def within(records: Iterable[Record], window: Window) -> list[Record]:
    """Requests that were scheduled in the window."""
    return [record for record in records if window.start <= record.scheduled < window.end]


def mean_of(
    samples: Iterable[Sample], window: Window, figure: Callable[[Sample], float | None]
) -> float | None:
    """The mean of a figure over a window's samples that have it; None when none has."""
    seen = [figure(sample) for sample in samples if window.start <= sample.time <= window.end]
    known = [value for value in seen if value is not None]
    return statistics.fmean(known) if known else None


def later_half(samples: Iterable[Sample], window: Window) -> list[Sample]:
    """Samples of the second half of a window: the server's summaries then cover the window alone (60 s)."""
    return [sample for sample in samples if window.start + window.seconds / 2 <= sample.time <= window.end]


def forward_p50_ms(samples: Sequence[Sample]) -> float | None:
    """Median over the samples of the worst pod's and variant's forward pass p50."""
    worst = [max(sample.forward_p50_ms.values()) for sample in samples if sample.forward_p50_ms]
    return statistics.median(worst) if worst else None


def outside_gpu_ms(records: Sequence[Record], samples: Sequence[Sample]) -> float | None:
    """p99 of the request minus p99 of its forward stage, for the variant where that is most."""
    found = []
    for model, some in by_variant(records).items():
        variant = model.rpartition("-")[2]
        forward = [sample.forward_p99_ms[variant] for sample in samples if variant in sample.forward_p99_ms]
        p99 = quantile_ms(some, 0.99)
        if forward and p99 is not None:
            found.append(p99 - statistics.median(forward))
    return max(found, default=None)


def max_gpus(samples: Iterable[Sample], start: float, end: float) -> int | None:
    """The most GPUs that were requested at once in [start, end]."""
    return max((sample.gpus for sample in samples if start <= sample.time <= end), default=None)


def seconds_to_slo_met(records: Sequence[Record], start: float, end: float) -> float | None:
    """Seconds from `start` to the end of the first 60 s with p99 ≤ 300 ms whose next 60 s have that too.

    Windows begin at whole seconds after `start`; both must have ended by `end`. None when there is none.
    """
    seconds, width = int(end - start), int(CONFIRM_S)
    all_by, slow_by = (
        [0] * (seconds + 2),
        [0] * (seconds + 2),
    )  # requests due before second n, and the slow of them
    for record in records:
        if start <= record.scheduled < end:
            second = int(record.scheduled - start) + 1
            all_by[second] += 1
            slow_by[second] += latency_ms(record) > SLO_MS
    all_by, slow_by = list(accumulate(all_by)), list(accumulate(slow_by))

    def good(at: int) -> bool:
        count, slow = (counts[at + width] - counts[at] for counts in (all_by, slow_by))
        return count > 0 and 100 * slow <= count  # the same as a nearest-rank p99 within the SLO

    for second in range(seconds - 2 * width + 1):
        if good(second) and good(second + width):
            return float(second + width)
    return None


def first_bottleneck(seen: Sequence[tuple[float, str]]) -> str | None:
    """The first bottleneck that was named; `None` (nothing is wrong) and no data do not name one."""
    return next((reason for _, reason in seen if reason not in ("", "None")), None)


_KEPT = ("Promoted", "ScaledUp", "ScaledDown")


def levers_used(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Levers whose change was kept, in the order in which they first were; one that was rolled back is out."""
    kept: dict[str, None] = {}
    for decision in sorted(decisions, key=lambda decision: decision.time):
        lever = decision.lever or "replicas"
        if decision.reason in _KEPT:
            kept.setdefault(lever)
        elif decision.reason == "RolledBack":
            kept.pop(lever, None)
    return tuple(kept)
