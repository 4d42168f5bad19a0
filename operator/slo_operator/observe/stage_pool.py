"""What is seen of a pool of servers without GPUs: its pods, its own times, and what the servers say of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from slo_operator.api.names import ANNOTATION_STAGES
from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.observe.measured import Field, Forwarded, Measurements
from slo_operator.observe.records import DeploymentRecord, PodRecord
from slo_operator.observe.rows import compute_s
from slo_tuner.signal import Signal, Unknown, Value
from slo_tuner.snapshot import SizeView, StagePoolView


def stage_pool_view(
    declared: PreprocessPool,
    deployment: DeploymentRecord | None,
    pods: Sequence[PodRecord],
    servers: Sequence[PodRecord],
    namespace: str,
    measured: Measurements,
) -> StagePoolView:
    """The tuner's picture of the pool; `servers` are the pods that forward to it."""
    members, senders = {p.meta.name for p in pods}, {p.meta.name for p in servers}
    by_stage: dict[str, list[Forwarded]] = defaultdict(list)
    for (where, pod, stage), f in measured.forwarded.items():
        if where == namespace and pod in senders:
            by_stage[stage].append(f)
    forwarded = [f for several in by_stage.values() for f in several]
    return StagePoolView(
        max_replicas=declared.max_replicas,
        processes=declared.resources.processes,
        replicas=deployment.replicas if deployment else 0,
        ready=sum(p.ready and not p.meta.terminating for p in pods),
        stages=_stages(deployment),
        service_s=compute_s(measured, namespace, members),
        network_s=_network_s(namespace, members, forwarded, measured),
        local_share=_local_share(forwarded),
        sizes={stage: _sizes(several) for stage, several in by_stage.items()},
    )


def _stages(deployment: DeploymentRecord | None) -> tuple[str, ...]:
    """The stages that every pod serves; none while pods of an older template may be there."""
    if deployment is None or deployment.observed_generation < deployment.generation:
        return ()
    if deployment.updated < deployment.total:
        return ()
    return tuple(filter(None, deployment.annotations.get(ANNOTATION_STAGES, "").split(",")))


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


#: fewer requests that found an idle member say nothing about how long a request of that size takes
LEAST_IDLE = 5.0


def _sizes(forwarded: Sequence[Forwarded]) -> tuple[SizeView, ...]:
    """What the pool answered by size, all servers together, small requests first."""
    totals: dict[tuple[float, bool], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for f in forwarded:
        for key, (answers, seconds) in f.by_size.items():
            before = totals[key]
            totals[key] = (before[0] + answers, before[1] + seconds)
    found = []
    for below in sorted({size for size, _ in totals}):
        idle, busy = totals[below, True], totals[below, False]
        answers = idle[0] + busy[0]
        if answers > 0:
            alone = idle[1] / idle[0] if idle[0] >= LEAST_IDLE else None
            found.append(SizeView(below, answers, (idle[1] + busy[1]) / answers, alone))
    return tuple(found)


def _local_share(forwarded: Sequence[Forwarded]) -> Signal:
    local = math.fsum(f.local for f in forwarded)
    total = local + math.fsum(f.answered for f in forwarded)
    if total <= 0:
        return Unknown("no request was forwarded within the window")
    return Value(local / total, source="inferenceslo_pool_requests_total")
