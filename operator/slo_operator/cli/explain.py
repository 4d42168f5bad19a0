"""`slo explain`: where the time goes, what would help, how it is set, what was done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import (
    BreakdownStatus,
    ChangeStatus,
    Condition,
    ConditionStatus,
    LeverStatus,
    ModelSettingsStatus,
    ModelStatus,
    ObjectiveStatus,
    PoolStatus,
    ServerStatus,
)
from slo_operator.cli.history import history
from slo_operator.cli.top import urgency
from slo_operator.cli.words import STAGES, age, bar, share_of

_BAR_WIDTH = 40
_LAST_DECISIONS = 5
_VERDICTS = {
    "Recommended": ("▶", "bold cyan"),
    "Eligible": ("○", ""),
    "Ineligible": ("–", "dim"),
    "Exhausted": ("✗", "dim"),
}
#: conditions whose True is the bad news
_BAD_WHEN_TRUE = {"Reconciling", "Stalled", "Suspended", "ControlExposed", "FieldContested"}


def explain(resource: InferenceSLO, models: Sequence[ModelStatus], now: datetime) -> list[RenderableType]:
    """The whole story of one resource, `models` of it in detail."""
    status = resource.status
    out: list[RenderableType] = [headline(resource), conditions_table(status.conditions, now)]
    if not models:
        out.append(Text("\nNo model was observed yet; the conditions above say why."))
    for model in sorted(models, key=urgency):
        out += [Text(), Text(f"{model.name} on {model.server}", style="bold"), _indented(_model(model))]
    for server in status.servers:
        concerned = [model for model in models if model.server == server.name]
        if concerned:
            out += [
                Text(),
                Text(f"server {server.name}", style="bold"),
                _indented(_server(server, concerned, now)),
            ]
    if status.history:
        out += [
            Text(),
            Text("last decisions", style="bold"),
            _indented(history(status.history[:_LAST_DECISIONS], now)),
        ]
    return out


def headline(resource: InferenceSLO) -> Text:
    """Name, mode and size in one line."""
    servers = resource.status.servers
    ready, wanted = sum(s.ready_replicas for s in servers), sum(s.replicas for s in servers)
    text = Text(f"{resource.namespace}/{resource.name}", style="bold")
    text.append(f"  mode {resource.spec.mode.value}", style="not bold")
    if resource.spec.suspend:
        text.append(", suspended", style="not bold yellow")
    text.append(f"  {ready}/{wanted} replicas ready  {sum(s.gpus for s in servers)} GPUs", style="not bold")
    if resource.generation > resource.status.observed_generation:
        text.append("  (the latest change of the spec was not seen yet)", style="not bold yellow")
    return text


def conditions_table(conditions: Sequence[Condition], now: datetime) -> Table:
    """One line per condition: state, reason, since when, message; what is bad news is red."""
    table = _grid(4, last_ratio=True)
    for condition in conditions:
        bad = condition.status is (
            ConditionStatus.TRUE if condition.type in _BAD_WHEN_TRUE else ConditionStatus.FALSE
        )
        unknown = condition.status is ConditionStatus.UNKNOWN
        colour = "yellow" if unknown else "red" if bad else "green"
        table.add_row(
            f"  {condition.type}",
            Text(f"{condition.status.value} {condition.reason}", style=colour),
            age(condition.last_transition_time, now),
            Text(condition.message),
        )
    return table


def _model(model: ModelStatus) -> list[RenderableType]:
    out: list[RenderableType] = [objective_line(objective) for objective in model.slo]
    if model.breakdown:
        out += [Text(), breakdown_bars(model.breakdown)]
    if model.bottleneck:
        out += [Text(), Text.assemble("bottleneck: ", (model.bottleneck.reason, "bold"))]
        if model.bottleneck.message:
            out.append(_indented([Text(model.bottleneck.message)]))
    return out


def objective_line(objective: ObjectiveStatus) -> Text:
    """An objective as a sentence: latency.p99 262ms of 300ms, met, 99.21% within it (…), N requests, source."""
    word, colour = {
        ConditionStatus.TRUE: ("met", "green"),
        ConditionStatus.FALSE: ("missed", "bold red"),
        ConditionStatus.UNKNOWN: ("unknown", "yellow"),
    }[objective.met]
    text = Text(f"{objective.objective}  {objective.observed or '–'} of {objective.target}  ")
    text.append(word, style=colour)
    if objective.reason and objective.reason.lower() != word:
        text.append(f" ({objective.reason})")
    details = []
    if objective.attainment:
        bounds = f" ({objective.interval})" if objective.interval else ""
        details.append(f"{objective.attainment} within the target{bounds}")
    if objective.requests:
        details.append(f"{objective.requests:,} requests")
    if objective.source:
        details.append(f"from {objective.source}")
    if details:
        text.append("\n  " + ", ".join(details), style="dim")
    if objective.message and not objective.attainment:
        # with an attainment the message says the same once more
        text.append(f"\n  {objective.message}", style="dim")
    return text


def breakdown_bars(breakdown: BreakdownStatus) -> RenderableType:
    """The stages of the mean latency, each with its time, share and bar, in the order of the pipeline."""
    rate = f" at {breakdown.rate} requests/s" if breakdown.rate else ""
    table = _grid(5)
    table.columns[2].justify = table.columns[3].justify = "right"
    for stage in breakdown.stages:
        share = share_of(stage.share) or 0.0
        table.add_row(
            f"  {STAGES.get(stage.stage, stage.stage)}",
            Text(stage.model, style="dim"),
            stage.time,
            f"{share:.0%}",
            Text(bar(share, _BAR_WIDTH), style="cyan" if stage.stage == "forward" else "magenta"),
        )
    lines: list[RenderableType] = [Text(f"where the mean of {breakdown.mean} goes{rate}"), table]
    if breakdown.outside_gpu:
        forward = f"; the forward pass has a p99 of {breakdown.forward_p99}" if breakdown.forward_p99 else ""
        lines.append(Text(f"{breakdown.outside_gpu} of the p99 are spent outside the GPU{forward}"))
    return Group(*lines)


def _server(server: ServerStatus, models: Sequence[ModelStatus], now: datetime) -> list[RenderableType]:
    out: list[RenderableType] = []
    if server.message:
        out += [Text(server.message), Text()]
    if server.change:
        out += [change_lines(server.change, now), Text()]
    if server.preprocess_pool:
        out += [pool_lines(server.preprocess_pool), Text()]
    # All models of a server share its ladder; when they do not, each is shown under its name.
    for names, levers in _merged([(model.name, tuple(model.levers)) for model in models]):
        if levers:
            title = "levers, cheapest first" + (f" ({names})" if names else "")
            out += [Text(title), levers_table(levers), Text()]
    settings = {row.model: row for model in models for row in model.settings}
    if settings:
        out += [Text("settings"), settings_table(list(settings.values()))]
    return out


def pool_lines(pool: PoolStatus) -> Text:
    """The pool that computes stages of this server: what it costs and what it gives."""
    text = Text.assemble(
        "pool: ",
        (", ".join(pool.stages) or "starting", "bold"),
        f", {pool.ready_replicas}/{pool.replicas} replicas ready, {pool.cores} cores",
    )
    if pool.network:
        text.append(f"\n  {pool.network} of each request are spent on the way there and back")
    if pool.computed_locally:
        text.append(f"\n  {pool.computed_locally} of them were computed in the server after all")
    return text


def change_lines(change: ChangeStatus, now: datetime) -> Text:
    """The change in flight: lever, phase, pods and how it stands."""
    text = Text.assemble(
        "change in flight: ", (change.lever, "bold"), f", {change.phase} for {age(change.since, now)}"
    )
    if change.pods:
        text.append(f", on {', '.join(change.pods)}")
    if change.message:
        text.append(f"\n  {change.message}")
    return text


def levers_table(levers: Sequence[LeverStatus]) -> Table:
    """The ladder with its verdicts."""
    table = _grid(4, last_ratio=True)
    for lever in levers:
        mark, style = _VERDICTS.get(lever.verdict, ("?", ""))
        predicted = f" (predicted {lever.predicted})" if lever.predicted else ""
        table.add_row(
            Text(f"  {mark}", style=style),
            Text(lever.lever, style=style),
            Text(lever.verdict, style=style),
            Text(lever.why + predicted, style="dim" if style == "dim" else ""),
        )
    return table


def settings_table(settings: Sequence[ModelSettingsStatus]) -> Table:
    """How each model runs now, in the serving engine's terms."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("  MODEL", "INSTANCES", "MAX BATCH", "DYNAMIC BATCHING", "PREFERRED", "PODS"):
        table.add_column(
            heading, no_wrap=True, justify="right" if heading in {"INSTANCES", "MAX BATCH"} else "left"
        )
    for row in settings:
        table.add_row(
            f"  {row.model}",
            "–" if row.instances is None else str(row.instances),
            "–" if row.max_batch_size is None else str(row.max_batch_size),
            f"waits up to {row.queue_delay}" if row.queue_delay else "off",
            ", ".join(map(str, row.preferred_sizes)) or "–",
            (row.pods or "–") + (", in the pool" if row.pool_timeout else ""),
        )
    return table


def _merged(
    pairs: Sequence[tuple[str, tuple[LeverStatus, ...]]],
) -> list[tuple[str, tuple[LeverStatus, ...]]]:
    """Equal values once, with the names that share them; one value for all needs no names."""
    groups: list[tuple[list[str], tuple[LeverStatus, ...]]] = []
    for name, value in pairs:
        known = next((names for names, other in groups if other == value), None)
        if known is None:
            groups.append(([name], value))
        else:
            known.append(name)
    return [("" if len(groups) == 1 else ", ".join(names), value) for names, value in groups]


def _indented(renderables: Sequence[RenderableType]) -> Padding:
    return Padding(Group(*renderables), (0, 0, 0, 2), expand=False)


def _grid(columns: int, *, last_ratio: bool = False) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for number in range(columns):
        last = number == columns - 1
        table.add_column(no_wrap=not (last and last_ratio), ratio=1 if last and last_ratio else None)
    return table
