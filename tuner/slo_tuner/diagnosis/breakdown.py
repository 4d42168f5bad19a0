"""Where the mean latency of a pipeline goes: stages along the critical path that add up to the mean.

Queue time of a batching model is split: while every instance is busy the batching delay costs
nothing, so delay = min(delay, Q/n) × P(an instance is free), inside the bounds 0 … min(delay, Q/n).
What no stage accounts for is *unexplained*, never forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slo_tuner.attainment import usable_grid
from slo_tuner.decision import Breakdown, StageShare
from slo_tuner.diagnosis.graph import critical_path
from slo_tuner.diagnosis.rows import ModelTimes, Times
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Idle, Unknown, Value
from slo_tuner.snapshot import Pipeline, ServerView
from slo_tuner.stats import quantile

MIN_TRACES = 100


@dataclass(frozen=True, slots=True)
class QueueSplit:
    """Mean queue time: batching delay (with its bounds) and waiting for a busy instance, in seconds."""

    delay_s: float
    delay_bounds_s: tuple[float, float]
    busy_wait_s: float


def split_queue(queue_s: float, settings: ModelSettings | None, busy: float | None) -> QueueSplit:
    """`busy` is the share of instance time in use; None leaves the delay at the middle of its bounds."""
    delay = (
        settings.batching.delay_us / 1e6 if settings is not None and settings.batching is not None else 0.0
    )
    highest = min(delay, queue_s)
    if highest <= 0.0:
        return QueueSplit(0.0, (0.0, 0.0), queue_s)
    instances = max(1, settings.instances) if settings is not None else 1
    all_busy = 0.5 if busy is None else min(1.0, max(0.0, busy)) ** math.sqrt(instances)
    estimate = highest * (1.0 - all_busy)
    return QueueSplit(estimate, (0.0, highest), queue_s - estimate)


def breakdown(view: ServerView, pipeline: Pipeline, times: Mapping[str, Times]) -> Breakdown | None:
    """The stages of one pipeline; None when the client-facing row itself is idle or unknown."""
    top = times.get(pipeline.model)
    if not isinstance(top, ModelTimes) or top.requests <= 0:
        return None
    config = view.models.get(pipeline.model)
    if config is not None and config.is_ensemble:
        members = {step.model for step in config.steps}
        known = {m: t for m in members if isinstance(t := times.get(m), ModelTimes)}
        path = critical_path(config.steps, {m: t.latency_s for m, t in known.items()}, view.models)
        stages: list[tuple[str, str, float]] = []
        for step in path:
            member = known.get(step.model)
            if member is None:
                continue
            if step.streamed:  # only its last call can be waited for, and no more than what is left
                left = top.latency_s - sum(s for _, _, s in stages)
                stages.append(("postprocess", step.model, max(0.0, min(member.latency_s, left))))
            else:
                stages.extend(_member(view, pipeline, member))
    else:
        stages = _member(view, pipeline, top)
    forward_p99, outside = tails(view, pipeline)
    return Breakdown(
        pipeline.model,
        Value(top.rate_rps, 0.0, "counters"),
        top.latency_s,
        _close(stages, top.latency_s, pipeline.model),
        forward_p99,
        outside,
    )


def _member(view: ServerView, pipeline: Pipeline, t: ModelTimes) -> list[tuple[str, str, float]]:
    config = view.models.get(t.model)
    settings = config.settings if config is not None else None
    split = split_queue(t.queue_s, settings, t.busy)
    kind = stage_kind(pipeline, t.model)
    parts = [
        ("batching_delay", t.model, split.delay_s),
        ("busy_wait", t.model, split.busy_wait_s),
        (kind, t.model, t.compute_s * (1.0 - t.hit_share)),
    ]
    return [p for p in parts if p[2] > 0.0]


def stage_kind(pipeline: Pipeline, model: str) -> str:
    if model in pipeline.preprocess:
        return "preprocess"
    if model in pipeline.postprocess:
        return "postprocess"
    return "forward" if model in pipeline.forward else "other"


def _close(stages: list[tuple[str, str, float]], mean_s: float, model: str) -> tuple[StageShare, ...]:
    """Make the stages add up: the rest is unexplained; members shared with other pipelines can sum to
    more than this one's mean, and are then scaled down together.
    """
    total = math.fsum(s for _, _, s in stages)
    scale = mean_s / total if total > mean_s > 0 else 1.0
    closed = [StageShare(kind, m, s * scale, s * scale / mean_s) for kind, m, s in stages]
    rest = max(0.0, mean_s - total * scale)
    return (*closed, StageShare("unexplained", model, rest, rest / mean_s))


def tails(view: ServerView, pipeline: Pipeline) -> tuple[float | None, float | None]:
    """p99 of the forward stage's computing, and p99 of the request minus it: the time outside the GPU.

    Exact from traces (the caller has dropped impossible ones); else from summaries, the worst pod's request
    p99 against the worst pod's forward p99.
    """
    mine = [t for t in view.traces if t.model == pipeline.model]
    if mine:
        newest = max(t.start for t in mine)
        mine = [t for t in mine if t.start > newest - pipeline.window_s]
    if len(mine) >= MIN_TRACES:
        forward = quantile(
            [sum(t.stages[m].compute_s for m in pipeline.forward if m in t.stages) for t in mine], 0.99
        )
        return forward, max(0.0, quantile([t.latency_s for t in mine], 0.99) - forward)
    request_p99 = _worst(view, {pipeline.model}, request=True)
    forward_p99 = _worst(view, set(pipeline.forward), request=False)
    if request_p99 is None or forward_p99 is None:
        return forward_p99, None
    return forward_p99, max(0.0, request_p99 - forward_p99)


def _worst(view: ServerView, models: set[str], request: bool) -> float | None:
    pods = {p.name for p in view.ready_pods}
    values: list[float] = []
    for r in (r for model in models for r in view.rows_of(model)):
        if r.pod in pods:
            grid = usable_grid(r.quantiles if request else r.compute_quantiles)
            values.extend(s for q, s in grid if q == 0.99)
    return max(values) if values else None


def describe_missing(times: Times | None) -> str:
    if isinstance(times, Unknown):
        return times.reason
    return "idle" if isinstance(times, Idle) else "not observed"
