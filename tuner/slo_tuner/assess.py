"""What was seen and what it means: objectives, breakdowns, bottleneck, the ladder. The same in every mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slo_tuner.attainment import judge
from slo_tuner.canary.evidence import sound
from slo_tuner.capacity.demand import arrivals
from slo_tuner.capacity.server import ServerModel, build
from slo_tuner.decision import Assessment, Verdict
from slo_tuner.diagnosis.bottleneck import find
from slo_tuner.diagnosis.breakdown import breakdown, describe_missing
from slo_tuner.diagnosis.rows import ModelTimes, Times, model_times
from slo_tuner.ladder import Rung, climb
from slo_tuner.levers.base import Context
from slo_tuner.levers.replicas import reachable, required_replicas
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Idle, Signal, Unknown, Value
from slo_tuner.snapshot import PoolView, RequestTrace, ServerView
from slo_tuner.urgency import missed, tight


@dataclass(frozen=True, slots=True)
class Picture:
    """One tick's view of a server, understood. `missing` says why numbers are not available; `missed` whether an
    objective is missed on evidence from after the last action, `tight` whether one is met without the margin;
    `idle` is proven.
    """

    context: Context
    assessment: Assessment
    rungs: tuple[Rung, ...]
    missed: bool
    tight: bool
    idle: bool
    missing: str


def assess(
    view: ServerView, pool: PoolView, memory: ServerMemory, policy: Policy, stable: PodSettings, now: float
) -> Picture:
    """Everything that a decision rests on; total: odd signals become unknown, never an exception."""
    view = _sane(view)
    names = list(dict.fromkeys([*(p.model for p in view.pipelines), *view.models]))
    times: dict[str, Times] = {m: model_times(view, m) for m in names}
    _doubt_silent_members(view, times)
    model = build(view, times, stable)
    ctx = Context(view, pool, policy, times, stable, model)
    objectives = tuple(judge(view, p, o, times[p.model]) for p in view.pipelines for o in p.objectives)
    breakdowns = tuple(b for p in view.pipelines if (b := breakdown(view, p, times)) is not None)
    idle = bool(view.pipelines) and all(isinstance(times[p.model], Idle) for p in view.pipelines)
    missing = "" if idle else _missing(view, times)
    late = not idle and missed(view, objectives, memory, now)
    close = not idle and not late and tight(view, memory, policy, now)
    needed = late or ctx.stuck() > 0
    rungs = climb(ctx, memory, needed or close, now, scaling=needed)
    assessment = Assessment(
        objectives=objectives,
        breakdowns=breakdowns,
        bottleneck=find(view, breakdowns, objectives, times, model, ctx.gpu_busy()),
        levers=tuple(r.advice for r in rungs),
        metrics_available=not missing,
        metrics_message=missing or ("idle" if idle else f"counters of {len(view.ready_pods)} pods"),
        arrivals_rps=_arrivals(view, times),
        shortfall_gpus=_shortfall(ctx, rungs, needed),
    )
    return Picture(ctx, assessment, rungs, late, close, idle, missing)


def _sane(view: ServerView) -> ServerView:
    """Without traces and blocks that no clock could have produced; the rest is gated where it is used."""

    def trace_ok(t: RequestTrace) -> bool:
        total = t.start + t.latency_s  # one infinity or NaN makes the sum one
        for s in t.stages.values():
            total += s.queue_s + s.compute_s
        return math.isfinite(total) and t.latency_s >= 0

    pods = {p.name for p in view.ready_pods}  # series of dead pods linger in query results
    return replace(
        view,
        traces=tuple(t for t in view.traces if trace_ok(t)),
        blocks=tuple(b for b in view.blocks if sound(b) and b.pod in pods),
    )


def _doubt_silent_members(view: ServerView, times: dict[str, Times]) -> None:
    """A member that did nothing under a busy ensemble has broken counters, it is not idle."""
    for name, config in view.models.items():
        top = times.get(name)
        if not config.is_ensemble or not isinstance(top, ModelTimes) or top.requests <= 0:
            continue
        for step in config.steps:
            if isinstance(times.get(step.model), Idle):
                times[step.model] = Unknown(
                    f"{step.model}: silent although {name} answered {top.requests:.0f} requests"
                )


def _missing(view: ServerView, times: Mapping[str, Times]) -> str:
    if not view.ready_pods:
        return "no pod is ready"
    unknown = [p.model for p in view.pipelines if isinstance(times[p.model], Unknown)]
    if unknown:
        return describe_missing(times[unknown[0]])
    partial = [
        p.model for p in view.pipelines if isinstance(t := times[p.model], ModelTimes) and not t.complete
    ]
    return f"{partial[0]}: counters of some ready pods are missing" if partial else ""


def _arrivals(view: ServerView, times: Mapping[str, Times]) -> Signal:
    rates = [
        arrivals(view, p, times[p.model]) for p in view.pipelines if not isinstance(times[p.model], Idle)
    ]
    if not rates:
        return Idle("no pipeline has traffic") if view.pipelines else Unknown("no pipeline")
    if any(r is None for r in rates):
        return Unknown("a pipeline's arrivals are unknown")
    return Value(sum(r for r in rates if r is not None))


def _shortfall(ctx: Context, rungs: tuple[Rung, ...], needed: bool) -> int:
    """GPUs that are missing for the replicas that would be needed, when no other lever is left."""
    if not needed or not isinstance(ctx.model, ServerModel):
        return 0
    if any(r.advice.verdict is Verdict.RECOMMENDED for r in rungs):
        return 0
    need = required_replicas(ctx, ctx.model)
    if need is None or need <= ctx.view.desired_replicas:
        return 0
    return max(0, need - max(reachable(ctx), ctx.view.desired_replicas)) * ctx.view.gpus_per_replica
