"""What each condition should say, from a tick's outcome. `Ready` never depends on `SLOMet`."""

from __future__ import annotations

from collections.abc import Sequence

from slo_operator.api.status import ConditionType, timestamp
from slo_operator.api.types import format_share
from slo_operator.conditions import Finding
from slo_operator.outcome import ResourceOutcome, ServerOutcome
from slo_tuner.decision import ObjectiveState, SLOState
from slo_tuner.signal import value_or_none

T = ConditionType

#: a member that ends costs a handful of requests; more of them than this is trouble
MUCH_LOCAL = 0.01


def findings(outcome: ResourceOutcome) -> list[Finding]:
    """Every condition of the resource, in the order in which people read them."""
    if outcome.invalid:
        return _invalid(outcome)
    servers = outcome.servers
    out = [
        _ready(servers),
        _reconciling(servers),
        _stalled(servers),
        _slo_met(servers),
        _metrics(servers),
        _capacity(servers),
        _suspended(outcome.suspend),
    ]
    if any(s.control_open for s in servers):
        names = ", ".join(s.server.name for s in servers if s.control_open)
        text = f"{names}: model control answers without a key; anyone who reaches the port can load code"
        out.append(Finding(T.CONTROL_EXPOSED, True, "ControlOpen", text))
    contested = [text for s in servers for text in s.contested]
    if contested:
        out.append(Finding(T.FIELD_CONTESTED, True, "ChangedByOthers", "; ".join(contested)))
    without = [text for s in servers if (text := _without_pool(s))]
    if without:
        out.append(Finding(T.POOL_UNAVAILABLE, True, "ComputedLocally", "; ".join(without)))
    return out


def _without_pool(s: ServerOutcome) -> str:
    """What to say when stages that were moved are computed in the server after all; empty while they are not."""
    pool = s.view.stage_pool if s.view is not None else None
    share = value_or_none(pool.local_share) if pool is not None else None
    if pool is None or share is None or share <= MUCH_LOCAL:
        return ""
    return (
        f"{s.server.name}: the pool did not answer {format_share(share)} of the requests, they were computed in the"
        f" server; {pool.ready} of {pool.replicas} replicas are ready"
    )


def _invalid(outcome: ResourceOutcome) -> list[Finding]:
    text = "; ".join(outcome.invalid)
    blind = "the spec cannot be read"
    return [
        Finding(T.READY, False, "InvalidSpec", text),
        Finding(T.RECONCILING, False, "InvalidSpec", "nothing is changed until the spec can be read"),
        Finding(T.STALLED, True, "InvalidSpec", text),
        Finding(T.SLO_MET, None, "InvalidSpec", blind),
        Finding(T.METRICS_AVAILABLE, None, "InvalidSpec", blind),
        Finding(T.CAPACITY_AVAILABLE, None, "InvalidSpec", blind),
        _suspended(outcome.suspend),
    ]


def _ready(servers: Sequence[ServerOutcome]) -> Finding:
    missing = [s for s in servers if s.deployment is None]
    if missing:
        text = "; ".join(_missing_text(s) for s in missing)
        return Finding(T.READY, False, "DeploymentMissing", text)
    short = [s for s in servers if s.deployment is not None and s.deployment.ready < _floor(s)]
    if short:
        text = "; ".join(
            f"{s.server.name}: {s.deployment.ready} of {_floor(s)} pods ready" for s in short if s.deployment
        )
        return Finding(T.READY, False, "PodsNotReady", text)
    text = "; ".join(f"{s.server.name}: {s.deployment.ready} pods ready" for s in servers if s.deployment)
    return Finding(T.READY, True, "PodsReady", text)


def _missing_text(s: ServerOutcome) -> str:
    if s.server.target is not None:
        return f"{s.server.name}: there is no Deployment {s.server.target.deployment} here"
    return f"{s.server.name}: its Deployment does not exist yet"


def _floor(s: ServerOutcome) -> int:
    """Pods that must be ready: the declared minimum, and for a target what its owner declared."""
    if s.server.managed or s.deployment is None:
        return s.server.replicas.min
    return s.deployment.replicas


def _reconciling(servers: Sequence[ServerOutcome]) -> Finding:
    moving = []
    for s in servers:
        if not s.server.managed:
            continue
        if s.error:
            moving.append(f"{s.server.name}: {s.error}")
        elif s.deployment is None:
            moving.append(f"{s.server.name}: being created")
        elif not s.deployment.settled and not s.deployment.stuck:
            d = s.deployment
            moving.append(f"{s.server.name}: {d.updated} of {d.replicas} pods updated, {d.ready} ready")
    if moving:
        return Finding(T.RECONCILING, True, "Progressing", "; ".join(moving))
    return Finding(T.RECONCILING, False, "UpToDate", "every child is as declared")


def _stalled(servers: Sequence[ServerOutcome]) -> Finding:
    broken = [f"{s.server.name}: {s.stalled}" for s in servers if s.stalled]
    if broken:
        return Finding(T.STALLED, True, "CannotApply", "; ".join(broken))
    stuck = [f"{s.server.name}: {s.deployment.stuck}" for s in servers if s.deployment and s.deployment.stuck]
    if stuck:
        return Finding(T.STALLED, True, "RolloutStuck", "; ".join(stuck))
    return Finding(T.STALLED, False, "AsExpected")


def point_met(objective: ObjectiveState) -> bool | None:
    """Whether the point estimate meets the objective; None without one."""
    if objective.attainment is not None and objective.quantile is not None:
        return objective.attainment >= objective.quantile
    if objective.observed_s is not None:
        return objective.observed_s <= objective.target_s
    return None


def _slo_met(servers: Sequence[ServerOutcome]) -> Finding:
    states = [o for s in servers if s.decision is not None for o in s.decision.assessment.objectives]
    if not states:
        return Finding(T.SLO_MET, None, "NoData", "nothing was observed yet")
    known = [(o, point_met(o)) for o in states]
    missed = [o for o, met in known if met is False]
    if missed:
        sure = any(o.state is SLOState.MISSED for o in missed)
        return Finding(T.SLO_MET, False, "Missed" if sure else "Undecided", _texts(missed))
    blind = [o for o, met in known if met is None and o.state is not SLOState.IDLE]
    if blind:
        return Finding(T.SLO_MET, None, "NotMeasurable", _texts(blind))
    met = [o for o, m in known if m]
    if not met:
        return Finding(T.SLO_MET, None, "Idle", "no traffic on any model")
    sure = all(o.state is SLOState.MET for o in met)
    return Finding(T.SLO_MET, True, "Met" if sure else "Undecided", _texts(met))


def _texts(states: Sequence[ObjectiveState]) -> str:
    return "; ".join(f"{o.model} {o.objective}: {o.message}" for o in states)


def _metrics(servers: Sequence[ServerOutcome]) -> Finding:
    seen = [s for s in servers if s.decision is not None]
    if not seen:
        return Finding(T.METRICS_AVAILABLE, None, "NotObserved", "nothing was observed yet")
    gone = [s for s in seen if s.decision is not None and not s.decision.assessment.metrics_available]
    if not gone:
        return Finding(T.METRICS_AVAILABLE, True, "Available", "every ready pod is measured")
    parts = []
    for s in gone:
        since = f" since {timestamp(s.since_unavailable)}" if s.since_unavailable is not None else ""
        why = s.decision.assessment.metrics_message if s.decision else ""
        parts.append(f"{s.server.name}: {why}{since}; the last safe state is held")
    return Finding(T.METRICS_AVAILABLE, False, "Unavailable", "; ".join(parts))


def _capacity(servers: Sequence[ServerOutcome]) -> Finding:
    short = [(s, s.decision.assessment.shortfall_gpus) for s in servers if s.decision is not None]
    missing = [(s, n) for s, n in short if n > 0]
    if not missing:
        return Finding(T.CAPACITY_AVAILABLE, True, "Enough")
    text = "; ".join(f"{s.server.name}: {n} more GPUs needed in pool {s.server.pool}" for s, n in missing)
    return Finding(T.CAPACITY_AVAILABLE, False, "NoCapacity", text)


def _suspended(suspend: bool) -> Finding:
    if suspend:
        return Finding(T.SUSPENDED, True, "SuspendedBySpec", "only status is written")
    return Finding(T.SUSPENDED, False, "Active")
