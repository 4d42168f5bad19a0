"""From what was observed to the tuner's picture of one server. Pure: nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slo_operator.api.names import CONTAINER
from slo_operator.api.spec import MIGPolicy, Pool, Server
from slo_operator.api.to_tuner import pipelines_of
from slo_operator.observe.live import LivePod
from slo_operator.observe.measured import Field, Measurements, PodField, PodKey
from slo_operator.observe.records import DeploymentRecord, NodeRecord, PodRecord
from slo_operator.observe.roles import with_gpu_users, with_roles
from slo_operator.observe.rows import compute_s, model_row
from slo_operator.observe.stage_pool import stage_pool_view
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Idle, Signal, Unknown, Value
from slo_tuner.snapshot import (
    GatewayHistogram,
    LatencyBlock,
    ModelConfig,
    ModelRow,
    Pipeline,
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
        gateway=_gateways(seen, pipelines),
        refusals=seen.refusals,
        arrivals_rps={p.model: arrivals(p, seen, rows, models) for p in pipelines},
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
    measured = seen.measured.pods.get(pod.meta.key, {})
    busy, used, free = (
        measured.get(f, {}) for f in (PodField.GPU_BUSY, PodField.GPU_MEMORY_USED, PodField.GPU_MEMORY_FREE)
    )
    return PodView(
        name=pod.meta.name,
        ready=pod.ready,
        terminating=pod.meta.terminating,
        started=pod.started,
        node=pod.node,
        gpus=pod.gpus,
        settings=live.settings if live and not live.error else {},
        gpu_busy={gpu: Value(v, source="DCGM GR_ENGINE_ACTIVE") for gpu, v in busy.items()},
        gpu_memory_used_mib={gpu: Value(v, source="DCGM FB_USED") for gpu, v in used.items()},
        gpu_memory_total_mib={
            gpu: Value(v + used[gpu], source="DCGM FB_USED + FB_FREE")
            for gpu, v in free.items()
            if gpu in used
        },
        cpu_used_cores=_cpu_used(seen, measured.get(PodField.CPU_CORES, {})),
        cpu_limit_cores=_cpu_limit(seen, pod),
        cpu_throttled_share=_throttled(seen, measured.get(PodField.CPU_THROTTLED, {})),
    )


def _cpu_used(seen: Observed, by_container: Mapping[str, float]) -> Signal:
    if not by_container:
        return Unknown(_why(seen, PodField.CPU_CORES, "container_cpu_usage_seconds_total"))
    cores = by_container.get(CONTAINER, sum(by_container.values()))
    return Value(cores, source="container_cpu_usage_seconds_total")


def _cpu_limit(seen: Observed, pod: PodRecord) -> Signal:
    if pod.cpu_limit_cores is not None:
        return Value(pod.cpu_limit_cores, source="resources.limits.cpu")
    node = seen.nodes.get(("", pod.node))
    if node is not None:
        return Value(node.cpu_cores, source=f"allocatable of node {pod.node}")
    return Unknown("no CPU limit, and its node is not known")


def _throttled(seen: Observed, shares: Mapping[str, float]) -> Signal:
    if not shares:
        return Unknown(_why(seen, PodField.CPU_THROTTLED, "container_cpu_cfs_throttled_periods_total"))
    return Value(min(1.0, max(shares.values())), source="container_cpu_cfs_throttled_periods_total")


def _why(seen: Observed, field_: PodField, family: str) -> str:
    measured = seen.measured
    return measured.failure or measured.failed.get(field_.value) or f"{family} has no series for this pod"


def _rows(seen: Observed, models: Mapping[str, ModelConfig]) -> tuple[ModelRow, ...]:
    return tuple(
        model_row(seen.measured, seen.namespace, pod.meta.name, config, models, seen.live.get(pod.meta.key))
        for pod in serving_pods(seen)
        for config in models.values()
    )


def _gateways(seen: Observed, pipelines: Sequence[Pipeline]) -> tuple[GatewayHistogram, ...]:
    """Per pipeline the histogram over the SLO's window; after an action only the short one, which does
    not mix the time before it into the verdict.
    """
    out = []
    for pipeline in pipelines:
        found = [
            g.histogram
            for g in seen.measured.gateways
            if g.namespace in ("", seen.namespace) and g.histogram.model == pipeline.model
        ]
        found = [h for h in found if h.age_s <= 2 * seen.measured.window_s]
        recent = seen.measured.at - seen.last_action < pipeline.window_s
        wanted = min(seen.measured.window_s, pipeline.window_s) if recent else pipeline.window_s
        out += sorted((h for h in found if h.window_s == wanted), key=lambda h: h.source)
    return tuple(out)


def arrivals(
    pipeline: Pipeline, seen: Observed, rows: Sequence[ModelRow], models: Mapping[str, ModelConfig]
) -> Signal:
    """Requests per second that arrive: answered, failed, and the growth of what waits.

    Waiting requests of a member that several pipelines share are theirs in proportion to their traffic.
    """
    mine = [r for r in rows if r.model == pipeline.model]
    if not mine:
        return Unknown("no ready pod")
    total, age, idle = 0.0, 0.0, 0
    for row in mine:
        if isinstance(row.requests, Idle):
            idle += 1
            continue
        if not isinstance(row.requests, Value):
            return Unknown(f"pod {row.pod}: {row.requests.reason}")
        failures = row.failures.value if isinstance(row.failures, Value) else 0.0
        grown = _backlog_growth(pipeline.model, row, seen, models)
        total += max(0.0, row.requests.value + failures + grown) / row.window_s
        age = max(age, row.requests.age_s)
    if idle == len(mine):
        return Idle("counters flat and nothing pending on every ready pod")
    return Value(total, age, "answered + failed + growth of pending")


def _backlog_growth(model: str, row: ModelRow, seen: Observed, models: Mapping[str, ModelConfig]) -> float:
    rows = seen.measured.rows

    def of(name: str, field_: Field) -> float:
        return rows.get((seen.namespace, row.pod, name), {}).get(field_, 0.0)

    grown = of(model, Field.PENDING_GROWTH)
    steps = models[model].steps if model in models else ()
    for member in {s.model for s in steps}:
        served = of(member, Field.REQUESTS)
        share = min(1.0, of(model, Field.REQUESTS) / served) if served > 0 else 0.0
        grown += share * of(member, Field.PENDING_GROWTH)
    return grown
