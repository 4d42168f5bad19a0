"""`slo history`: the decisions, told in the order in which they were taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slo_operator.api.status import DecisionStatus
from slo_operator.cli.words import age, clock

#: how a decision ended, by colour; what is not named is plain
_COLOURS = {
    "Promoted": "green",
    "SLOMet": "green",
    "CanaryRestored": "yellow",
    "CanaryAbandoned": "yellow",
    "RolledBack": "yellow",
    "LoadRefused": "red",
    "NoCapacity": "red",
    "NoData": "red",
    "SLOInfeasible": "red",
    "LeversExhausted": "red",
}


def history(decisions: Sequence[DecisionStatus], now: datetime) -> list[RenderableType]:
    """A table of decisions, oldest first. `decisions` are newest first, as the status has them; times are UTC."""
    if not decisions:
        return [Text("No decision was taken yet: nothing was begun, ended or refused.")]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("TIME (UTC)", no_wrap=True)
    table.add_column("AGO", justify="right", no_wrap=True)
    table.add_column("SERVER", no_wrap=True)
    table.add_column("DECISION", no_wrap=True)
    table.add_column("LEVER", no_wrap=True)
    table.add_column("WHY", ratio=1)
    for decision in reversed(decisions):
        table.add_row(
            clock(decision.time, now),
            age(decision.time, now),
            decision.server,
            Text(decision.reason, style=_COLOURS.get(decision.reason, "")),
            decision.lever or "–",
            Text(decision.message),
        )
    return [table]
