"""Figures per block: how canary and peers differ in latency, misses and the time at the changed stages.

A `Period` is a stretch of time cut into blocks; every function gives one number per block that has enough
requests, in order, which is what the effects are computed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slo_tuner.canary.effect import Point
from slo_tuner.snapshot import LatencyBlock
from slo_tuner.stats import mean

MIN_REQUESTS = 5.0
#: blocks over which the present load is told, and by which the stretch grows backwards: bursts recur within these
PRESENT_BLOCKS = 4
STEP_BLOCKS = 2
SAME_LOAD = 0.8

_Cell = Sequence[LatencyBlock]


@dataclass(frozen=True, slots=True)
class Period:
    """Blocks by start, where every compared pod answered; each with the blocks of all pods and models."""

    cells: Mapping[float, _Cell]

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def blocks(self) -> list[LatencyBlock]:
        return [b for cell in self.cells.values() for b in cell]

    @property
    def pods(self) -> set[str]:
        return {b.pod for b in self.blocks}

    @property
    def rate(self) -> float:
        """Completed requests per second, all pods together."""
        seconds = math.fsum(cell[0].seconds for cell in self.cells.values())
        return math.fsum(b.requests for b in self.blocks) / seconds if seconds > 0 else 0.0


def period(blocks: Iterable[LatencyBlock], pods: Collection[str]) -> Period:
    """The blocks in which each of these pods answered something."""
    cells: dict[float, list[LatencyBlock]] = {}
    for b in blocks:
        cells.setdefault(b.start, []).append(b)
    complete = {
        start: cell
        for start, cell in sorted(cells.items())
        if {b.pod for b in cell if b.requests > 0} >= set(pods)
    }
    return Period(complete)


def at_present_load(p: Period) -> Period:
    """The latest stretch of the period whose load is that of its end. What came before a step of the traffic is no
    measure of what comes after it, and no sign that the load moves now."""
    cells = list(p.cells.items())
    begin = max(0, len(cells) - PRESENT_BLOCKS)
    present = Period(dict(cells[begin:])).rate
    while begin > 0:
        earlier = Period(dict(cells[max(0, begin - STEP_BLOCKS) : begin])).rate
        if not SAME_LOAD * present <= earlier <= present / SAME_LOAD:
            break
        begin = max(0, begin - STEP_BLOCKS)
    return Period(dict(cells[begin:]))


def sound(b: LatencyBlock) -> bool:
    """Whether a clock and a counter could have produced this block."""
    numbers = (b.start, b.seconds, b.requests, b.latency_sum_s, b.failures, b.misses or 0.0)
    return all(math.isfinite(x) and x >= 0 for x in (*numbers, *b.stage_sums_s.values())) and b.seconds > 0


def requests(p: Period, pods: Collection[str]) -> float:
    return math.fsum(b.requests for b in p.blocks if b.pod in pods)


def log_latency(p: Period, canary: str, peers: Collection[str]) -> list[Point]:
    """log(canary ÷ peers) of mean latency, averaged over the pipelines."""

    def one(cell: _Cell) -> float | None:
        ratios = []
        for model in _models(cell):
            a, b = _mean_latency(cell, [canary], model), _mean_latency(cell, peers, model)
            if a is not None and b is not None:
                ratios.append(math.log(a / b))
        return mean(ratios) if ratios else None

    return _per_block(p, one)


def levels(p: Period, pods: Collection[str] | None = None) -> list[float]:
    """Log mean latency over these pods (all), averaged over the pipelines."""
    chosen = p.pods if pods is None else pods

    def one(cell: _Cell) -> float | None:
        values = [v for m in _models(cell) if (v := _mean_latency(cell, chosen, m)) is not None]
        return mean([math.log(v) for v in values]) if values else None

    return [x.figure for x in _per_block(p, one)]


def misses(p: Period, canary: str, peers: Collection[str]) -> list[Point]:
    """Differences of the shares of requests over the target."""
    return _miss_differences(p, canary, peers, lambda share: share)


def root_misses(p: Period, canary: str, peers: Collection[str]) -> list[Point]:
    """Differences of the square roots of miss shares. Misses come in bursts, so that their spread grows with their
    number; the root makes it even, and one bad block of the peers does not hide nine better ones."""
    return _miss_differences(p, canary, peers, math.sqrt)


def miss_levels(p: Period) -> list[float]:
    pods = p.pods
    return [x.figure for x in _per_block(p, lambda cell: _miss_share(cell, pods))]


def miss_share(p: Period, pods: Collection[str]) -> float | None:
    """Share of all their requests over the target; None when it is not known throughout."""
    return _miss_share(p.blocks, pods)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Time at the changed stages per request, waiting and computing, of both sides at the same mix of pipelines."""

    canary_s: float
    peers_s: float


def stage_times(p: Period, canary: str, peers: Collection[str], stages: Collection[str]) -> StageTimes | None:
    """Over the whole period; None where the stages are not known."""
    return _stage_times(p.blocks, canary, peers, stages)


def log_stages(p: Period, canary: str, peers: Collection[str], stages: Collection[str]) -> list[Point]:
    """log(canary ÷ peers) of the time at the changed stages per request."""

    def one(cell: _Cell) -> float | None:
        found = _stage_times(cell, canary, peers, stages)
        return None if found is None else math.log(found.canary_s / found.peers_s)

    return _per_block(p, one)


def mean_latency(p: Period, pods: Collection[str]) -> float | None:
    """Seconds per request, all pipelines together."""
    mine = [b for b in p.blocks if b.pod in pods]
    n = math.fsum(b.requests for b in mine)
    return math.fsum(b.latency_sum_s for b in mine) / n if n > 0 else None


def _per_block(p: Period, figure: Callable[[_Cell], float | None]) -> list[Point]:
    found = ((cell, figure(cell)) for cell in p.cells.values())
    return [Point(x, math.fsum(b.requests for b in cell)) for cell, x in found if x is not None]


def _models(cell: _Cell) -> list[str]:
    return sorted({b.model for b in cell})


def _mean_latency(cell: _Cell, pods: Collection[str], model: str) -> float | None:
    mine = [b for b in cell if b.model == model and b.pod in pods]
    n = math.fsum(b.requests for b in mine)
    seconds = math.fsum(b.latency_sum_s for b in mine)
    return seconds / n if n >= MIN_REQUESTS and seconds > 0 else None


def _miss_differences(
    p: Period, canary: str, peers: Collection[str], scale: Callable[[float], float]
) -> list[Point]:
    def one(cell: _Cell) -> float | None:
        a, b = _miss_share(cell, [canary]), _miss_share(cell, peers)
        return None if a is None or b is None else scale(a) - scale(b)

    return _per_block(p, one)


def _miss_share(cell: _Cell, pods: Collection[str]) -> float | None:
    mine = [b for b in cell if b.pod in pods]
    n = math.fsum(b.requests + b.failures for b in mine)
    if n < MIN_REQUESTS or any(b.misses is None for b in mine):
        return None
    return math.fsum((b.misses or 0.0) + b.failures for b in mine) / n


def _stage_times(
    cell: _Cell, canary: str, peers: Collection[str], stages: Collection[str]
) -> StageTimes | None:
    """Pipelines weigh on both sides as they do in all: a pod that got more of the slow ones is no slower for it."""
    mine, theirs, weight = 0.0, 0.0, 0.0
    for model in _models(cell):
        a = _stage_time(cell, [canary], model, stages)
        b = _stage_time(cell, peers, model, stages)
        if a is None or b is None:
            continue
        n = a[1] + b[1]
        mine, theirs, weight = mine + n * a[0], theirs + n * b[0], weight + n
    return StageTimes(mine / weight, theirs / weight) if mine > 0 and theirs > 0 else None


def _stage_time(
    cell: _Cell, pods: Collection[str], model: str, stages: Collection[str]
) -> tuple[float, float] | None:
    """(seconds per request, requests) of one pipeline."""
    known = [b for b in cell if b.model == model and b.pod in pods and b.stage_sums_s]
    n = math.fsum(b.requests for b in known)
    if n < MIN_REQUESTS:
        return None
    return math.fsum(b.stage_sums_s.get(s, 0.0) for b in known for s in stages) / n, n
