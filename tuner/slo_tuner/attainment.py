"""Is an objective met? From the best evidence there is, with its uncertainty.

Best first: the gateway's histogram, request traces, the server's own summary quantiles (bounds, worst
pod), nothing. Quantiles of pods are never averaged. Failures are misses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from slo_tuner.decision import ObjectiveState, SLOState
from slo_tuner.diagnosis.rows import Times, number
from slo_tuner.objectives import Objective
from slo_tuner.signal import Idle, Unknown
from slo_tuner.snapshot import GatewayHistogram, Pipeline, ServerView
from slo_tuner.stats import quantile, share_interval

#: a quantile from fewer requests beyond it than this is not a quantile (a p99 needs 100 requests)
MIN_BEYOND = 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Requests within the target (`low` … `high` where the source only bounds it), of `total`, and the
    quantile with `observed_s` as point estimate.
    """

    low: float
    high: float
    total: float
    observed_s: float | None
    source: str


def judge(view: ServerView, pipeline: Pipeline, objective: Objective, times: Times) -> ObjectiveState:
    """The state of one objective over the pipeline's window; never raises on odd data."""
    if objective.metric != "latency":
        return _plain(pipeline, objective, SLOState.NOT_MEASURABLE, f"no source for {objective.metric}")
    if objective.quantile is None:
        return _judge_mean(pipeline, objective, times)
    evidence = (
        _gateway(view, pipeline, objective)
        or _traces(view, pipeline, objective)
        or _summaries(view, pipeline, objective)
    )
    if evidence is None:
        if isinstance(times, Idle):
            return _plain(pipeline, objective, SLOState.IDLE, "no traffic")
        why = (
            times.reason
            if isinstance(times, Unknown)
            else "only means are known; a quantile needs a histogram, traces or summaries"
        )
        return _plain(pipeline, objective, SLOState.NOT_MEASURABLE, why)
    return _verdict(pipeline, objective, objective.quantile, evidence)


def _verdict(pipeline: Pipeline, objective: Objective, level: float, e: Evidence) -> ObjectiveState:
    interval = share_interval(e.low, e.total)[0], share_interval(e.high, e.total)[1]
    attainment = 0.5 * (e.low + e.high) / e.total
    if interval[0] >= level:
        state = SLOState.MET
    elif interval[1] < level:
        state = SLOState.MISSED
    else:
        state = SLOState.UNDECIDED
    message = f"{attainment:.1%} of {e.total:.0f} requests within {objective.target_s * 1e3:.0f} ms"
    if state is SLOState.UNDECIDED:
        message += f" (95 %: {interval[0]:.1%} to {interval[1]:.1%})"
    return ObjectiveState(
        pipeline.model,
        objective.name,
        objective.target_s,
        state,
        level,
        e.observed_s,
        attainment,
        interval,
        e.total,
        e.source,
        message,
    )


def _plain(pipeline: Pipeline, objective: Objective, state: SLOState, message: str) -> ObjectiveState:
    return ObjectiveState(
        pipeline.model, objective.name, objective.target_s, state, objective.quantile, message=message
    )


def _judge_mean(pipeline: Pipeline, objective: Objective, times: Times) -> ObjectiveState:
    if isinstance(times, Idle):
        return _plain(pipeline, objective, SLOState.IDLE, "no traffic")
    if isinstance(times, Unknown):
        return _plain(pipeline, objective, SLOState.NOT_MEASURABLE, times.reason)
    state = SLOState.MET if times.latency_s <= objective.target_s else SLOState.MISSED
    return ObjectiveState(
        pipeline.model, objective.name, objective.target_s, state, None, times.latency_s, None, None, times.requests,
        "counters", f"mean over {times.requests:.0f} requests",
    )  # fmt: skip


def _gateway(view: ServerView, pipeline: Pipeline, objective: Objective) -> Evidence | None:
    level = objective.quantile or 0.0
    for h in view.gateway:
        if h.model != pipeline.model or not plausible_buckets(h):
            continue
        total = h.buckets[-1][1] + max(0.0, h.failures)
        if (1.0 - level) * total < MIN_BEYOND:
            continue
        low = max((n for bound, n in h.buckets if bound <= objective.target_s + 1e-9), default=0.0)
        exact = any(abs(bound - objective.target_s) < 1e-9 for bound, _ in h.buckets)
        high = (
            low if exact else min((n for bound, n in h.buckets if bound >= objective.target_s), default=low)
        )
        return Evidence(low, high, total, bucket_quantile(h.buckets, total, level), h.source)
    return None


def plausible_buckets(h: GatewayHistogram) -> bool:
    """Finite, ascending and monotone, ends with +Inf and saw requests (a lagging +Inf bucket is a known fault)."""
    if len(h.buckets) < 2 or not math.isinf(h.buckets[-1][0]) or not math.isfinite(h.failures):
        return False
    counts = [n for _, n in h.buckets]
    bounds = [b for b, _ in h.buckets]
    if not all(math.isfinite(n) and n >= 0 for n in counts) or any(math.isnan(b) for b in bounds):
        return False
    # rates of counters scraped at different moments may disagree by rounding
    slack = 1e-6 * max(1.0, counts[-1])
    rising = all(a <= b + slack for a, b in pairwise(counts))
    return rising and all(a < b for a, b in pairwise(bounds)) and counts[-1] > 0


def bucket_quantile(buckets: tuple[tuple[float, float], ...], total: float, level: float) -> float | None:
    """Quantile interpolated inside its bucket; at most the last finite bound, which then is a lower bound."""
    rank = level * total
    below_bound, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound):
                return below_bound
            return below_bound + (bound - below_bound) * (rank - below) / max(count - below, 1e-12)
        below_bound, below = (bound, count) if not math.isinf(bound) else (below_bound, count)
    return below_bound  # failures push the rank beyond every answer


def _traces(view: ServerView, pipeline: Pipeline, objective: Objective) -> Evidence | None:
    level = objective.quantile or 0.0
    mine = [
        t
        for t in view.traces
        if t.model == pipeline.model and math.isfinite(t.latency_s) and math.isfinite(t.start)
    ]
    if not mine:
        return None
    newest = max(t.start for t in mine)
    latencies = [t.latency_s for t in mine if t.start > newest - pipeline.window_s]
    if (1.0 - level) * len(latencies) < MIN_BEYOND:
        return None
    failed = sum(number(r.failures) or 0.0 for r in view.rows_of(pipeline.model))
    served = sum(number(r.requests) or 0.0 for r in view.rows_of(pipeline.model))
    failures = failed / served * len(latencies) if served > 0 else failed
    within = float(sum(x <= objective.target_s for x in latencies))
    return Evidence(within, within, len(latencies) + failures, quantile(latencies, level), "request traces")


def _summaries(view: ServerView, pipeline: Pipeline, objective: Objective) -> Evidence | None:
    """Attainment lies between the highest level at or under the target and the next level, per pod; the
    observed quantile is the worst pod's: a bound, not the quantile of all.
    """
    level = objective.quantile or 0.0
    pods = {p.name for p in view.ready_pods}
    rows = [r for r in view.rows_of(pipeline.model) if r.pod in pods]
    low = high = total = 0.0
    worst: tuple[float, str, float] | None = None
    for row in rows:
        n = number(row.requests)
        grid = usable_grid(row.quantiles)
        if n is None or n <= 0:
            continue
        if not grid:
            return None
        # summaries cover the last 60 s: evidence is what arrived in them
        n = n * min(1.0, 60.0 / row.window_s)
        failures = (number(row.failures) or 0.0) * min(1.0, 60.0 / row.window_s)
        low += n * max((q for q, s in grid if s <= objective.target_s), default=0.0)
        high += n * min((q for q, s in grid if s > objective.target_s), default=1.0)
        total += n + failures
        at = next((s for q, s in grid if q >= level), None)
        if at is not None and (worst is None or at > worst[0]):
            worst = (at, row.pod, n)
    if worst is None or (1.0 - level) * total < MIN_BEYOND:
        return None
    source = f"server summaries, worst pod {worst[1]} with {worst[2] / total:.0%} of requests"
    return Evidence(low, high, total, worst[0], source)


def usable_grid(quantiles: Mapping[float, float]) -> list[tuple[float, float]]:
    """(level, seconds) ascending; empty when a value is NaN (no request for 60 s) or the grid is not monotone."""
    grid = sorted(quantiles.items())
    if not all(math.isfinite(q) and math.isfinite(s) and s >= 0 for q, s in grid):
        return []
    return grid if all(a[1] <= b[1] for a, b in pairwise(grid)) else []
