"""The parts of a status that describe servers and models, from the tuner's decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slo_operator.api.status import (
    BottleneckStatus,
    BreakdownStatus,
    ChangeStatus,
    ConditionStatus,
    LeverStatus,
    ModelSettingsStatus,
    ModelStatus,
    ObjectiveStatus,
    PoolStatus,
    RecommendationStatus,
    ServerStatus,
    StageStatus,
    timestamp,
)
from slo_operator.api.types import Duration, format_latency, format_share
from slo_operator.findings import point_met
from slo_operator.outcome import ServerOutcome
from slo_tuner.decision import Assessment, Breakdown, LeverAdvice, ObjectiveState, Verdict
from slo_tuner.settings import LongLane, ModelSettings, PodSettings
from slo_tuner.signal import value_or_none
from slo_tuner.snapshot import Pipeline, PodView, ServerView


def server_status(outcome: ServerOutcome, now: float) -> ServerStatus:
    """One server: its pods, its rollout, the change in flight."""
    view, deployment = outcome.view, outcome.deployment
    pods = view.pods if view is not None else ()
    problems = (outcome.stalled, outcome.error, outcome.problem)
    return ServerStatus(
        name=outcome.server.name,
        replicas=deployment.replicas if deployment else 0,
        ready_replicas=sum(p.ready and not p.terminating for p in pods),
        gpus=sum(p.gpus for p in pods),
        config_hash=outcome.config_hash or None,
        rollout=_rollout(outcome),
        message="; ".join(p for p in problems if p),
        change=_change(outcome, now),
        preprocess_pool=_pool(view),
    )


def _pool(view: ServerView | None) -> PoolStatus | None:
    pool = view.stage_pool if view is not None else None
    if pool is None or not pool.replicas:
        return None
    network, local = value_or_none(pool.network_s), value_or_none(pool.local_share)
    return PoolStatus(
        replicas=pool.replicas,
        ready_replicas=pool.ready,
        stages=list(pool.stages),
        cores=pool.replicas * pool.processes,
        network=None if network is None else format_latency(network),
        computed_locally=None if local is None else format_share(local),
    )


def _rollout(outcome: ServerOutcome) -> str:
    deployment = outcome.deployment
    if deployment is None:
        return "Missing"
    if deployment.stuck:
        return "Blocked"
    return "Complete" if deployment.settled else "Progressing"


def _change(outcome: ServerOutcome, now: float) -> ChangeStatus | None:
    change = outcome.decision.memory.change if outcome.decision else None
    if change is None:
        return None
    return ChangeStatus(
        lever=change.lever,
        phase=change.phase.value,
        since=timestamp(min(now, change.since)),
        pods=list(change.pods)[:256],
        settings=_settings(change.settings),
        message=outcome.decision.message if outcome.decision else "",
    )


def model_statuses(outcome: ServerOutcome) -> list[ModelStatus]:
    """Every client-facing model of the server."""
    if outcome.view is None or outcome.decision is None:
        return []
    assessment = outcome.decision.assessment
    return [_model(outcome.view, pipeline, assessment) for pipeline in outcome.view.pipelines]


def _model(view: ServerView, pipeline: Pipeline, assessment: Assessment) -> ModelStatus:
    members = (pipeline.model, *pipeline.preprocess, *pipeline.forward, *pipeline.postprocess)
    found = assessment.bottleneck
    bottleneck = None
    if found is not None and found.model in ("", *members):
        bottleneck = BottleneckStatus(
            reason=found.reason.value,
            model=found.model,
            message=found.message,
            evidence=finite(found.evidence),
        )
    breakdown = next((b for b in assessment.breakdowns if b.model == pipeline.model), None)
    return ModelStatus(
        server=view.name,
        name=pipeline.model,
        slo=[_objective(o) for o in assessment.objectives if o.model == pipeline.model][:16],
        breakdown=_breakdown(breakdown) if breakdown else None,
        bottleneck=bottleneck,
        settings=_live_settings(view, dict.fromkeys(members)),
        recommendation=_recommendation(assessment.levers),
        levers=[
            LeverStatus(lever=a.lever, verdict=a.verdict.value, why=a.why, predicted=_latency(a.predicted_s))
            for a in assessment.levers
        ][:16],
    )


def _objective(o: ObjectiveState) -> ObjectiveStatus:
    met = point_met(o)
    return ObjectiveStatus(
        objective=o.objective,
        target=format_latency(o.target_s),
        observed=_latency(o.observed_s),
        attainment=format_share(o.attainment) if o.attainment is not None else None,
        interval=f"{format_share(o.interval[0])}–{format_share(o.interval[1])}" if o.interval else None,
        requests=round(o.requests),
        source=short(o.source or None),
        met={True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[met],
        reason=o.state.value,
        message=o.message,
    )


def _breakdown(b: Breakdown) -> BreakdownStatus:
    rate = value_or_none(b.rate_rps)
    return BreakdownStatus(
        mean=format_latency(b.mean_s),
        rate=f"{rate:.1f}" if rate is not None else None,
        forward_p99=_latency(b.forward_p99_s),
        outside_gpu=_latency(b.outside_gpu_s),
        stages=[
            StageStatus(
                stage=s.kind, model=s.model, time=format_latency(s.mean_s), share=format_share(s.share)
            )
            for s in b.stages
        ][:32],
    )


def _recommendation(levers: Sequence[LeverAdvice]) -> RecommendationStatus | None:
    advice = next((a for a in levers if a.verdict is Verdict.RECOMMENDED), None)
    if advice is None:
        return None
    return RecommendationStatus(
        lever=advice.lever,
        message=advice.why,
        settings=_settings(advice.settings),
        replicas=advice.replicas,
        predicted=_latency(advice.predicted_s),
    )


def _live_settings(view: ServerView, members: Mapping[str, None]) -> list[ModelSettingsStatus]:
    """What the members run, and on how many of the ready pods."""
    pods = [p for p in view.ready_pods if p.settings]
    out = []
    for model in members:
        config = view.models.get(model)
        if config is not None and not config.is_ensemble:
            out.append(_setting(model, config.settings, _agreeing(model, config.settings, pods)))
    return out[:64]


def _agreeing(model: str, settings: ModelSettings, pods: Sequence[PodView]) -> str:
    return f"{sum(p.settings.get(model) == settings for p in pods)}/{len(pods)}"


def _settings(settings: PodSettings) -> list[ModelSettingsStatus]:
    return [_setting(model, settings[model]) for model in sorted(settings)][:64]


def _setting(model: str, s: ModelSettings, pods: str | None = None) -> ModelSettingsStatus:
    batching = s.batching
    return ModelSettingsStatus(
        model=model,
        instances=s.instances,
        max_batch_size=s.max_batch_size,
        queue_delay=str(Duration.of_seconds(batching.delay_us / 1e6)) if batching else None,
        preferred_sizes=list(batching.preferred_sizes)[:32] if batching else [],
        pool_timeout=str(Duration.of_seconds(s.remote.timeout_ms / 1e3)) if s.remote else None,
        long_lane=_long_lane(s.remote.lane) if s.remote and s.remote.lane else None,
        pods=pods,
    )


def _long_lane(lane: LongLane) -> str:
    return f"{lane.from_bytes} bytes and more: {lane.members} replica{'s' if lane.members > 1 else ''}"


def finite(evidence: Mapping[str, float]) -> dict[str, float]:
    """What JSON can carry, at most 64 entries."""
    good = {k[:128]: round(float(v), 6) for k, v in evidence.items() if math.isfinite(v)}
    return dict(list(good.items())[:64])


def short(text: str | None) -> str | None:
    """At most 256 characters, as the schema allows."""
    return text if text is None or len(text) <= 256 else text[:255] + "…"


def _latency(seconds: float | None) -> str | None:
    return format_latency(seconds) if seconds is not None else None
