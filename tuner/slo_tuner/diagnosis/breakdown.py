"""Where the mean latency of a pipeline goes: stages along the critical path that add up to the mean.

Queue time of a batching model is split: while every instance is busy the batching delay costs
nothing, so delay = min(delay, Q/n) × P(an instance is free), inside the bounds 0 … min(delay, Q/n).
Both parts carry their bounds; answers from the response cache wait for nothing.
What no stage accounts for is *unexplained*, never forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

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

    @property
    def busy_wait_bounds_s(self) -> tuple[float, float]:
        """What is left of the queue time when the delay is at its bounds."""
        queue_s = self.delay_s + self.busy_wait_s
        low, high = self.delay_bounds_s
        return max(0.0, queue_s - high), queue_s - low


def split_queue(
    queue_s: float, settings: ModelSettings | None, busy: float | None, hit_share: float = 0.0
) -> QueueSplit:
    """`busy` is the share of instance time in use; None leaves the delay at the middle of its bounds. `hit_share` of
    the requests were answered from the response cache before any queue.
    """
    delay = (
        settings.batching.delay_us / 1e6 if settings is not None and settings.batching is not None else 0.0
    )
    highest = min(delay * (1.0 - hit_share), queue_s)
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
        stages: list[StageShare] = []
        for step in path:
            member = known.get(step.model)
            if member is None:
                continue
            if step.streamed:  # only its last call can be waited for, and no more than what is left
                left = top.latency_s - sum(s.mean_s for s in stages)
                last = max(0.0, min(member.latency_s, left))
                stages.append(StageShare("postprocess", step.model, last, 0.0))
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


def _member(view: ServerView, pipeline: Pipeline, t: ModelTimes) -> list[StageShare]:
    """Stages of one model, still without their shares. Both parts of a queue in which a delay may have a part are
    estimates.
    """
    config = view.models.get(t.model)
    settings = config.settings if config is not None else None
    split = split_queue(t.queue_s, settings, t.busy, t.hit_share)
    delay = StageShare("batching_delay", t.model, split.delay_s, 0.0)
    wait = StageShare("busy_wait", t.model, split.busy_wait_s, 0.0)
    if split.delay_bounds_s[1] > 0.0:
        delay = replace(delay, low_s=split.delay_bounds_s[0], high_s=split.delay_bounds_s[1])
        wait = replace(wait, low_s=split.busy_wait_bounds_s[0], high_s=split.busy_wait_bounds_s[1])
    computing = StageShare(stage_kind(pipeline, t.model), t.model, t.compute_s * (1.0 - t.hit_share), 0.0)
    return [one for one in (delay, wait, computing) if one.mean_s > 0.0]


def stage_kind(pipeline: Pipeline, model: str) -> str:
    if model in pipeline.preprocess:
        return "preprocess"
    if model in pipeline.postprocess:
        return "postprocess"
    return "forward" if model in pipeline.forward else "other"


def _close(stages: list[StageShare], mean_s: float, model: str) -> tuple[StageShare, ...]:
    """Make the stages add up: the rest is unexplained; members shared with other pipelines can sum to
    more than this one's mean, and are then scaled down together, with their bounds.
    """
    total = math.fsum(one.mean_s for one in stages)
    scale = mean_s / total if total > mean_s > 0 else 1.0
    closed = [_scaled(one, scale, mean_s) for one in stages]
    rest = max(0.0, mean_s - total * scale)
    return (*closed, StageShare("unexplained", model, rest, rest / mean_s))


def _scaled(one: StageShare, scale: float, whole_s: float) -> StageShare:
    low, high = (None if bound is None else bound * scale for bound in (one.low_s, one.high_s))
    mean_s = one.mean_s * scale
    return StageShare(one.kind, one.model, mean_s, mean_s / whole_s, low, high)


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
