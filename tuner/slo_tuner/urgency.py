"""Whether something has to be done: an objective that is missed, or met without its margin.

Only requests from after the last action count: windows from before it never trigger a second one.
"""

from __future__ import annotations

import math

from slo_tuner.attainment import plausible_buckets
from slo_tuner.decision import ObjectiveState, SLOState
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.snapshot import ServerView
from slo_tuner.stats import chance_below

#: evidence of a miss has to be at least this long after the last action, and this sure
EVIDENCE_S = 30.0
SURE = 0.8
RECENT_S = 120.0
#: nothing is missed yet, so there is time for a longer look
TIGHT_EVIDENCE_S = 60.0
TIGHT_REQUESTS = 300


def missed(
    view: ServerView, objectives: tuple[ObjectiveState, ...], memory: ServerMemory, now: float
) -> bool:
    """Whether some objective is missed, with a certainty of 80 %, by requests from after the last action alone.

    A lever that is turned in vain costs a reload and is undone; waiting for 95 % costs minutes of misses.
    """
    if now - memory.last_action < EVIDENCE_S:
        return False
    for p in view.pipelines:
        for o, state in (
            (o, s) for o in p.objectives for s in objectives if s.model == p.model and s.objective == o.name
        ):
            after = now - memory.last_action
            if o.quantile is None:
                if state.state is SLOState.MISSED and after >= _span(view, p.model, state):
                    return True
                continue
            counted = _recent(view, p.model, o.target_s, memory, now)
            if counted is None:  # only the window's own figure: wait until all of it is from after the action
                if after < _span(view, p.model, state) or state.attainment is None:
                    continue
                counted = state.attainment * state.requests, state.requests
            within, total = counted
            if total >= 50 and chance_below(o.quantile, within, total) >= SURE:
                return True
    return False


def _span(view: ServerView, model: str, state: ObjectiveState) -> float:
    """Seconds that the figure of an objective covers, by its source."""
    if state.source.startswith("server summaries"):
        return 60.0
    spans = [h.window_s for h in view.gateway if h.model == model and h.source == state.source]
    spans = spans or [r.window_s for r in view.rows_of(model)]
    return max((s for s in spans if math.isfinite(s)), default=60.0)


def _recent(
    view: ServerView, model: str, target_s: float, memory: ServerMemory, now: float
) -> tuple[float, float] | None:
    """(within, total) since the last action, from blocks or else traces."""
    start = _start(memory, now)
    blocks = [b for b in view.blocks if b.model == model and b.start >= start]
    if blocks and all(b.misses is not None for b in blocks):
        total = sum(b.requests + b.failures for b in blocks)
        return total - sum((b.misses or 0.0) + b.failures for b in blocks), total
    times = _traced(view, model, start)
    return (float(sum(t <= target_s for t in times)), float(len(times))) if times else None


def _start(memory: ServerMemory, now: float) -> float:
    """From when on requests count: after the last action, two minutes at most."""
    return max(memory.last_action, now - RECENT_S)


def _traced(view: ServerView, model: str, start: float) -> list[float]:
    return [t.latency_s for t in view.traces if t.model == model and t.start >= start]


def tight(view: ServerView, memory: ServerMemory, policy: Policy, now: float) -> bool:
    """Whether some quantile lies, with a certainty of 80 %, less than the policy's margin below its target.

    Worth a lever that costs no GPU, never a replica. A histogram tells when it has a bound within the margin.
    """
    if now - memory.last_action < TIGHT_EVIDENCE_S:
        return False
    for p in view.pipelines:
        for o in p.objectives:
            if o.quantile is None:
                continue
            counted = _inside_margin(view, p.model, o.target_s, policy.margin, memory, now)
            if counted is None:
                continue
            within, total = counted
            if total >= TIGHT_REQUESTS and chance_below(o.quantile, within, total) >= SURE:
                return True
    return False


def _inside_margin(
    view: ServerView, model: str, target_s: float, margin: float, memory: ServerMemory, now: float
) -> tuple[float, float] | None:
    """(requests that met the target with its margin, all), since the last action."""
    least = (1.0 - margin) * target_s
    for h in view.gateway:
        # a window that reaches back before the action is no evidence of what it left
        if h.model != model or now - memory.last_action < h.window_s or not plausible_buckets(h):
            continue
        within = next((n for bound, n in h.buckets if least - 1e-9 <= bound < target_s - 1e-9), None)
        if within is not None:
            return within, h.buckets[-1][1] + max(0.0, h.failures)
    times = _traced(view, model, _start(memory, now))
    return (float(sum(t <= least for t in times)), float(len(times))) if times else None
