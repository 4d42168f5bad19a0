"""How much traffic to plan for: arrivals, not completions, and the bursts inside them."""

from __future__ import annotations

import math
from collections import Counter

from slo_tuner.diagnosis.rows import ModelTimes, Times, number
from slo_tuner.snapshot import NOT_OBSERVED, Pipeline, ServerView

#: burstiness assumed where nothing finer than the mean is known
DEFAULT_PEAK = 1.5
BIN_S = 2.5


def arrivals(view: ServerView, pipeline: Pipeline, times: Times) -> float | None:
    """Requests per second that arrive for the pipeline, over all pods; None when unknown.

    The observed arrival rate where there is one; else completions plus failures plus what is pending
    spread over the window: under back-pressure completions alone say that all is well.
    """
    observed = number(view.arrivals_rps.get(pipeline.model, NOT_OBSERVED))
    counted: float | None = None
    if isinstance(times, ModelTimes):
        counted = (times.requests + times.failures + (times.pending or 0.0)) / times.window_s
    if observed is None:
        return counted
    return observed if counted is None else max(observed, min(counted, 1.5 * observed))


def peak_factor(view: ServerView) -> float:
    """Peak rate in bursts of seconds ÷ mean rate, between 1.1 and 4.

    From traces: the 90th percentile of short bins, less the spread that Poisson arrivals alone would
    show. From 10-s blocks, which blur short bursts: the excess counts twice. Else a default. Rounded to a
    tenth, so that the plan (and the status) does not move with noise.
    """
    factor = _from_traces(view)
    if factor is None:
        factor = _from_blocks(view)
    if factor is None:
        factor = DEFAULT_PEAK
    return min(4.0, max(1.1, round(factor, 1)))


def _from_traces(view: ServerView) -> float | None:
    starts = [t.start for t in view.traces if math.isfinite(t.start)]
    if len(starts) < 400:
        return None
    newest = max(starts)
    starts = [s for s in starts if s > newest - 120.0]
    first = min(starts)
    bins = int((newest - first) / BIN_S)
    if bins < 16:
        return None
    counts = Counter(int((s - first) / BIN_S) for s in starts)
    return _peak_of([float(counts[i]) for i in range(bins)], 0.9)


def _from_blocks(view: ServerView) -> float | None:
    totals: dict[float, float] = {}
    for b in view.blocks:
        if math.isfinite(b.requests) and b.requests >= 0:
            totals[b.start] = totals.get(b.start, 0.0) + b.requests
    counts = [totals[s] for s in sorted(totals)][-18:-1]
    if len(counts) < 6:
        return None
    excess = _peak_of(counts, 0.9) - 1.0
    return max(DEFAULT_PEAK - 0.2, 1.0 + 2.0 * excess)


def _peak_of(counts: list[float], level: float) -> float:
    mean = math.fsum(counts) / len(counts)
    if mean <= 0.0:
        return 1.0
    high = sorted(counts)[min(len(counts) - 1, math.ceil(level * len(counts)) - 1)]
    spread = math.fsum((c - mean) ** 2 for c in counts) / len(counts)
    if spread <= 1.5 * mean:  # no more than Poisson arrivals show by themselves
        return 1.1
    return max(1.1, high / mean)
