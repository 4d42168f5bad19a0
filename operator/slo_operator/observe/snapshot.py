"""From what was observed to the tuner's picture of one server. Pure: nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slo_operator.api.spec import MIGPolicy, Pool, Server
from slo_operator.api.to_tuner import pipelines_of
from slo_operator.observe.host import host_signals
from slo_operator.observe.live import LivePod
from slo_operator.observe.measured import Measurements, PodKey
from slo_operator.observe.records import DeploymentRecord, NodeRecord, PodRecord
from slo_operator.observe.roles import with_gpu_users, with_roles
from slo_operator.observe.rows import compute_s, model_row
from slo_operator.observe.stage_pool import stage_pool_view
from slo_operator.observe.traffic import arrivals, histograms
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Signal, Unknown, Value
from slo_tuner.snapshot import (
    LatencyBlock,
    ModelConfig,
    ModelRow,
    PodView,
    Refusal,
    RequestTrace,
    ServerView,
    StagePoolView,
)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that was seen of one server in this tick."""

    namespace: str
    resource: str
    server: Server
    pool: Pool
    deployment: DeploymentRecord | None
    pods: Sequence[PodRecord]
    nodes: Mapping[tuple[str, str], NodeRecord]
    live: Mapping[PodKey, LivePod]
    measured: Measurements
    blocks: tuple[LatencyBlock, ...] = ()
    traces: tuple[RequestTrace, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    tuned: PodSettings = field(default_factory=dict)
    canaries: frozenset[str] = frozenset()
    last_action: float = 0.0
    stage_pool: DeploymentRecord | None = None
    pool_pods: Sequence[PodRecord] = ()


def server_view(seen: Observed) -> ServerView:
    """The tuner's picture of the server; whatever is missing is unknown, with the reason."""
    server = seen.server
    models = _models(seen)
    rows = _rows(seen, models)
    compute = compute_s(seen.measured, seen.namespace, {p.meta.name for p in seen.pods})
    pipelines = tuple(with_roles(p, models, compute) for p in pipelines_of(server))
    return ServerView(
        namespace=seen.namespace,
        resource=seen.resource,
        name=server.name,
        pool=server.pool,
        gpus_per_replica=server.accelerator.gpus,
        min_replicas=server.replicas.min,
        max_replicas=server.replicas.max,
        desired_replicas=seen.deployment.replicas if seen.deployment else server.replicas.min,
        managed=server.managed,
        pods=tuple(_pod(seen, p) for p in seen.pods),
        models=with_gpu_users(models, pipelines) if any(p.gpus > 0 for p in seen.pods) else models,
        pipelines=pipelines,
        rows=rows,
        traces=seen.traces,
        blocks=seen.blocks,
        gateway=histograms(seen.measured, seen.namespace, pipelines, seen.last_action),
        refusals=seen.refusals,
        arrivals_rps={p.model: arrivals(p, seen.measured, seen.namespace, rows, models) for p in pipelines},
        mig_allowed=seen.pool.mig.policy is MIGPolicy.LAST_RESORT,
        tuned=seen.tuned,
        stage_pool=_stage_pool(seen),
    )


def _stage_pool(seen: Observed) -> StagePoolView | None:
    declared = seen.server.preprocess_pool
    if declared is None:
        return None
    return stage_pool_view(
        declared, seen.stage_pool, seen.pool_pods, serving_pods(seen), seen.namespace, seen.measured
    )


def serving_pods(seen: Observed) -> list[PodRecord]:
    """Ready and staying: whose numbers count."""
    return [p for p in seen.pods if p.ready and not p.meta.terminating]


def _models(seen: Observed) -> dict[str, ModelConfig]:
    """Configurations as the stable pods run them: of the oldest one that answers and is no canary."""
    answering = [p for p in seen.pods if (live := seen.live.get(p.meta.key)) and live.models]
    answering.sort(key=lambda p: (p.meta.name in seen.canaries, p.meta.terminating, p.started))
    return dict(seen.live[answering[0].meta.key].models) if answering else {}


def _pod(seen: Observed, pod: PodRecord) -> PodView:
    live = seen.live.get(pod.meta.key)
    host = host_signals(seen.measured, pod.meta.key)
    return PodView(
        name=pod.meta.name,
        ready=pod.ready,
        terminating=pod.meta.terminating,
        started=pod.started,
        node=pod.node,
        gpus=pod.gpus,
        settings=live.settings if live and not live.error else {},
        gpu_busy=host.gpu_busy,
        gpu_memory_used_mib=host.gpu_memory_used_mib,
        gpu_memory_total_mib=host.gpu_memory_total_mib,
        cpu_used_cores=host.cpu_used_cores,
        cpu_limit_cores=_cpu_limit(seen, pod),
        cpu_throttled_share=host.cpu_throttled_share,
    )


def _cpu_limit(seen: Observed, pod: PodRecord) -> Signal:
    if pod.cpu_limit_cores is not None:
        return Value(pod.cpu_limit_cores, source="resources.limits.cpu")
    node = seen.nodes.get(("", pod.node))
    if node is not None:
        return Value(node.cpu_cores, source=f"allocatable of node {pod.node}")
    return Unknown("no CPU limit, and its node is not known")


def _rows(seen: Observed, models: Mapping[str, ModelConfig]) -> tuple[ModelRow, ...]:
    return tuple(
        model_row(seen.measured, seen.namespace, pod.meta.name, config, models, seen.live.get(pod.meta.key))
        for pod in serving_pods(seen)
        for config in models.values()
    )
