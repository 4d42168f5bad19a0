"""From the resource's spec to the tuner's types: Policy, Pipeline, Objective."""

from __future__ import annotations

from slo_operator.api.model import Latency, ServedModel
from slo_operator.api.spec import InferenceSLOSpec, Server
from slo_tuner.objectives import Objective
from slo_tuner.policy import Policy
from slo_tuner.snapshot import Pipeline


def policy_of(spec: InferenceSLOSpec, interval_s: float = 15.0) -> Policy:
    """The rules of the whole resource; `interval_s` is the operator's own."""
    return Policy(
        mode=spec.mode,
        suspend=spec.suspend,
        min_samples=spec.rollout.min_samples,
        analysis_s=spec.rollout.analysis.seconds,
        max_extra_misses=spec.rollout.max_extra_misses.share,
        reloads_per_hour=spec.rollout.reloads_per_hour,
        interval_s=interval_s,
    )


def pipelines_of(server: Server) -> tuple[Pipeline, ...]:
    """The server's client-facing models in the order of the spec; roles that nobody named are empty."""
    return tuple(pipeline_of(model) for model in server.models)


def pipeline_of(model: ServedModel) -> Pipeline:
    """One client-facing model."""
    stages = model.stages
    return Pipeline(
        model=model.name,
        preprocess=tuple(stages.preprocess) if stages else (),
        forward=tuple(stages.forward) if stages else (),
        postprocess=tuple(stages.postprocess) if stages else (),
        objectives=objectives_of(model.slo.latency),
        max_batch_size=model.limits.batch_size.max,
        max_queue_delay_us=model.limits.queue_delay.max.microseconds,
        max_preprocess_instances=model.limits.preprocess_instances.max,
        min_batch_size=model.limits.batch_size.min,
        window_s=model.slo.window.seconds,
        throughput_rps=model.slo.throughput or 0.0,
    )


def objectives_of(latency: Latency) -> tuple[Objective, ...]:
    """The latency objectives, strictest quantile first, the mean last."""
    targets = (
        (0.99, latency.p99),
        (0.95, latency.p95),
        (0.9, latency.p90),
        (0.5, latency.p50),
        (None, latency.mean),
    )
    return tuple(
        Objective("latency", quantile, target.seconds) for quantile, target in targets if target is not None
    )
