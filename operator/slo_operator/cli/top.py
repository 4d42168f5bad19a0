"""`slo top`: one line per client-facing model, the one furthest from its target first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import ConditionStatus, ModelStatus, ObjectiveStatus, ServerStatus
from slo_operator.cli.words import seconds_of, share_of

_MET = {
    ConditionStatus.TRUE: ("met", "green"),
    ConditionStatus.FALSE: ("missed", "bold red"),
    ConditionStatus.UNKNOWN: ("unknown", "yellow"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One model's line; texts as the status has them, None where it says nothing."""

    namespace: str
    resource: str
    model: str
    mode: str
    met: str
    objective: str | None
    observed: str | None
    target: str | None
    attainment: str | None
    rate: str | None
    bottleneck: str | None
    replicas: str
    gpus: int
    change: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rows(resources: Sequence[InferenceSLO]) -> list[Row]:
    """The lines of all models, the most urgent first."""
    pairs = [(resource, model) for resource in resources for model in resource.status.models]
    pairs.sort(key=lambda pair: (urgency(pair[1]), pair[0].namespace, pair[0].name))
    return [_row(resource, model) for resource, model in pairs]


def urgency(model: ModelStatus) -> tuple[bool, float, str]:
    """Sorts models with a missed objective first, then by observed ÷ target, largest first."""
    objective = worst(model.slo)
    if objective is None:
        return True, 0.0, model.name
    return objective.met is not ConditionStatus.FALSE, -ratio(objective), model.name


def worst(objectives: Sequence[ObjectiveStatus]) -> ObjectiveStatus | None:
    """The objective to show: a missed one before all others, then the one closest to its target."""
    return max(objectives, key=lambda o: (o.met is ConditionStatus.FALSE, ratio(o)), default=None)


def ratio(objective: ObjectiveStatus) -> float:
    """Observed over target of a latency; 0 when there is no observed time."""
    observed, target = seconds_of(objective.observed), seconds_of(objective.target)
    return observed / target if observed is not None and target else 0.0


def _row(resource: InferenceSLO, model: ModelStatus) -> Row:
    objective = worst(model.slo)
    servers = (server for server in resource.status.servers if server.name == model.server)
    server = next(servers, ServerStatus(name=model.server))
    change = server.change
    return Row(
        namespace=resource.namespace,
        resource=resource.name,
        model=model.name,
        mode="Suspended" if resource.spec.suspend else resource.spec.mode.value,
        met=_MET[objective.met if objective else ConditionStatus.UNKNOWN][0],
        objective=objective.objective if objective else None,
        observed=objective.observed if objective else None,
        target=objective.target if objective else None,
        attainment=objective.attainment if objective else None,
        rate=model.breakdown.rate if model.breakdown else None,
        bottleneck=model.bottleneck.reason if model.bottleneck else None,
        replicas=f"{server.ready_replicas}/{server.replicas}",
        gpus=server.gpus,
        change=f"{change.lever} ({change.phase})" if change else None,
    )


def table(lines: Sequence[Row]) -> Table:
    """The lines as a table; times are those of the objective shown."""
    out = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("RESOURCE", "MODEL", "MODE", "SLO"):
        out.add_column(heading, no_wrap=True)
    for heading in ("OBSERVED", "TARGET", "WITHIN", "REQ/S"):
        out.add_column(heading, justify="right", no_wrap=True)
    out.add_column("BOTTLENECK", no_wrap=True)
    out.add_column("READY", justify="right", no_wrap=True)
    out.add_column("GPUS", justify="right", no_wrap=True, min_width=4)
    out.add_column("CHANGE", min_width=6)
    colours = dict(_MET.values())
    for line in lines:
        within = share_of(line.attainment)
        out.add_row(
            f"{line.namespace}/{line.resource}",
            line.model,
            line.mode,
            Text(line.met, style=colours[line.met]),
            line.observed or "–",
            f"{line.objective.rpartition('.')[2]} {line.target}" if line.objective else "–",
            "–" if within is None else f"{within:.1%}",
            line.rate or "–",
            line.bottleneck or "–",
            line.replicas,
            str(line.gpus),
            line.change or "–",
        )
    return out
