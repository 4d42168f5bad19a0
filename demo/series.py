"""From requests and samples to what the charts draw: points over seconds since the first request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from demo.goals import latency_ms, quantile_ms
from demo.run_data import Run, Sample, Stage
from devcluster.gateway.records import Record

P99_WINDOW_S = 20.0
P99_STEP_S = 2.0
RATE_BIN_S = 2.5

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the time axis with a name."""

    start: float
    end: float
    name: str
    counted: bool


@dataclass(frozen=True, slots=True)
class Pin:
    """A moment on the time axis; `label` is the number of a decision, or a word."""

    at: float
    label: str
    says: str


def zero(run: Run) -> float:
    """The Unix time of the charts' 0 s: the first request."""
    return min((record.scheduled for record in run.records), default=run.started)


def p99_over_time(records: Sequence[Record], begin: float, model: str | None = None) -> Points:
    """p99 of the requests of the 20 s before, every 2 s; windows with fewer than 50 requests are left out."""
    chosen = sorted((r for r in records if model in (None, r.model)), key=lambda r: r.scheduled)
    found, first, last = [], 0, 0
    at = P99_WINDOW_S
    end = chosen[-1].scheduled - begin if chosen else 0.0
    while at <= end:
        while last < len(chosen) and chosen[last].scheduled - begin < at:
            last += 1
        while first < last and chosen[first].scheduled - begin < at - P99_WINDOW_S:
            first += 1
        p99 = quantile_ms(chosen[first:last], 0.99)
        if p99 is not None and last - first >= 50:
            found.append((at, p99))
        at += P99_STEP_S
    return found


def rate_over_time(records: Sequence[Record], begin: float) -> Points:
    """Arrivals per second in bins of 2.5 s, at the bins' middles."""
    if not records:
        return []
    counts = [0] * (int((max(r.scheduled for r in records) - begin) / RATE_BIN_S) + 1)
    for record in records:
        counts[int((record.scheduled - begin) / RATE_BIN_S)] += 1
    return [((at + 0.5) * RATE_BIN_S, count / RATE_BIN_S) for at, count in enumerate(counts[:-1])]


def stages_over_time(run: Run, begin: float) -> dict[Stage, Points]:
    """Mean time per stage at every sample that has a breakdown."""
    known = [sample for sample in run.samples if sample.stages_ms and sample.time >= begin]
    return {
        stage: [(sample.time - begin, sample.stages_ms.get(stage, 0.0)) for sample in known]
        for stage in Stage
    }


def percent_over_time(run: Run, begin: float, share: Callable[[Sample], float | None]) -> Points:
    """A share in percent at every sample where it is known."""
    seen = [(sample.time - begin, share(sample)) for sample in run.samples if sample.time >= begin]
    return [(at, 100 * value) for at, value in seen if value is not None]


def bands(run: Run, begin: float) -> list[Band]:
    """The counted windows, by name."""
    names = {"baseline": "as found", "tuned": "repaired", "doubled": "twice the traffic"}
    return [
        Band(window.start - begin, window.end - begin, names[name.value], counted=True)
        for name, window in run.windows.items()
    ]


def pins(run: Run, begin: float) -> list[Pin]:
    """Decisions, numbered as in the table, from the first request on."""
    return [
        Pin(decision.time - begin, str(number), f"{decision.reason}: {decision.message}")
        for number, decision in enumerate(run.decisions, start=1)
        if decision.time >= begin
    ]


def failures(run: Run, begin: float) -> Points:
    """(time, latency) of failed requests."""
    return [(record.scheduled - begin, latency_ms(record)) for record in run.records if record.failed]
