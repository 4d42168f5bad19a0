"""What is seen of a pool of servers without GPUs: its pods, its own times, and what the servers say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slo_operator.api.names import ANNOTATION_STAGES
from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.observe.catalogue import Field
from slo_operator.observe.measure import Forwarded, Measurements
from slo_operator.observe.records import DeploymentRecord, PodRecord
from slo_tuner.signal import Signal, Unknown, Value
from slo_tuner.snapshot import StagePoolView

_COMPUTE = (Field.COMPUTE_INPUT_US, Field.COMPUTE_INFER_US, Field.COMPUTE_OUTPUT_US)


def stage_pool_view(
    declared: PreprocessPool,
    deployment: DeploymentRecord | None,
    pods: Sequence[PodRecord],
    servers: Sequence[PodRecord],
    namespace: str,
    measured: Measurements,
) -> StagePoolView:
    """The tuner's picture of the pool; `servers` are the pods that forward to it."""
    members = {p.meta.name for p in pods}
    forwarded = [
        f
        for (where, pod, _), f in measured.forwarded.items()
        if where == namespace and pod in {p.meta.name for p in servers}
    ]
    return StagePoolView(
        max_replicas=declared.max_replicas,
        processes=declared.resources.processes,
        replicas=deployment.replicas if deployment else 0,
        ready=sum(p.ready and not p.meta.terminating for p in pods),
        stages=_stages(deployment),
        service_s=_service_s(namespace, members, measured),
        network_s=_network_s(namespace, members, forwarded, measured),
        local_share=_local_share(forwarded),
    )


def _stages(deployment: DeploymentRecord | None) -> tuple[str, ...]:
    """The stages that every pod serves; none while pods of an older template may be there."""
    if deployment is None or deployment.observed_generation < deployment.generation:
        return ()
    if deployment.updated < deployment.total:
        return ()
    return tuple(filter(None, deployment.annotations.get(ANNOTATION_STAGES, "").split(",")))


def _service_s(namespace: str, members: set[str], measured: Measurements) -> dict[str, float]:
    """Mean compute time of a request inside the pool, by stage."""
    sums: dict[str, tuple[float, float]] = {}
    for (where, pod, model), fields in measured.rows.items():
        if where != namespace or pod not in members:
            continue
        spent = math.fsum(fields.get(f, 0.0) for f in _COMPUTE) / 1e6
        requests, seconds = sums.get(model, (0.0, 0.0))
        sums[model] = requests + fields.get(Field.REQUESTS, 0.0), seconds + spent
    return {model: seconds / requests for model, (requests, seconds) in sums.items() if requests > 0}


def _network_s(
    namespace: str, members: set[str], forwarded: Sequence[Forwarded], measured: Measurements
) -> Signal:
    """What a forwarded request takes beyond its time in the pool: the way there and back, packing and unpacking."""
    answered = math.fsum(f.answered for f in forwarded)
    rows = [f for (where, pod, _), f in measured.rows.items() if where == namespace and pod in members]
    served = math.fsum(f.get(Field.REQUESTS, 0.0) for f in rows)
    if answered <= 0 or served <= 0:
        return Unknown("no request was forwarded within the window")
    there = math.fsum(f.get(Field.REQUEST_US, 0.0) for f in rows) / 1e6 / served
    return Value(
        max(0.0, math.fsum(f.seconds for f in forwarded) / answered - there), source="servers − pool"
    )


def _local_share(forwarded: Sequence[Forwarded]) -> Signal:
    local = math.fsum(f.local for f in forwarded)
    total = local + math.fsum(f.answered for f in forwarded)
    if total <= 0:
        return Unknown("no request was forwarded within the window")
    return Value(local / total, source="inferenceslo_pool_requests_total")
