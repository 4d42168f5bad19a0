"""A diagnosis for people: a bar for the mean, the bottleneck in a sentence, the first levers with what to write."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slo_operator.cli.words import STAGES, bar

_WIDTH = 120
_BAR = 40
_LEVERS = 3
_PODS = 3
_COLOURS = {"met": "green", "missed": "bold red"}
Json = dict[str, Any]


def show(found: Json) -> None:
    """Print the diagnosis of every model."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    for number, model in enumerate(found["models"]):
        title = Text.assemble((model["model"], "bold"), (_where(model["pods"]), "dim"))
        console.print(*([Text()] if number else []), title, sep="\n")
        console.print(Padding(Group(*_model(model)), (0, 0, 0, 2), expand=False))
    if not found["models"]:
        console.print("no client-facing model has counters")


def _where(pods: list[str]) -> str:
    if len(pods) < 2:
        return ""
    return f"  on {', '.join(pods)}" if len(pods) <= _PODS else f"  on {len(pods)} pods"


def _model(model: Json) -> list[RenderableType]:
    if model["state"] != "active":
        what = "idle: no request, nothing pending" if model["state"] == "idle" else "nothing can be said"
        return [Text(what), *_warnings(model)]
    p99 = model["p99"]
    tail = f", p99 {'at most ' if p99['kind'] == 'bound' else ''}{p99['ms']:g} ms" if p99["ms"] else ""
    out: list[RenderableType] = [
        Text(f"{model['rate_rps']:g} requests/s, mean {model['mean_latency_ms']:g} ms{tail}"),
        *map(_slo, model["slo"]),
        Text(),
        _bars(model),
    ]
    if model["bottleneck"]:
        out += [Text(), Text.assemble("bottleneck: ", (model["bottleneck"]["reason"], "bold"))]
        out.append(Padding(Text(model["bottleneck"]["message"]), (0, 0, 0, 2)))
    return [*out, Text(), *_levers(model), *_open(model), *_warnings(model)]


def _slo(one: Json) -> Text:
    observed = "–" if one["observed"] is None else f"{one['observed']:g} ms"
    text = Text(f"{one['objective']}  {observed} of {one['target']:g} ms  ")
    text.append(one["state"], style=_COLOURS.get(one["state"], "yellow"))
    return text.append(f"  {one['message']}", style="dim")


def _bars(model: Json) -> Table:
    table = Table.grid(padding=(0, 2))
    ranges = any("low" in stage for stage in model["breakdown"])
    sides: list[JustifyMethod] = ["left", "left", "right", "right", "left"]
    if ranges:
        sides.insert(3, "left")
    for side in sides:
        table.add_column(justify=side, no_wrap=True)
    for stage in model["breakdown"]:
        table.add_row(
            "queue" if stage["stage"] == "queue" else STAGES[stage["stage"]],
            Text(stage["model"], style="dim"),
            f"{stage['ms']:g} ms",
            *([Text(_range(stage), style="dim")] if ranges else []),
            f"{stage['share']:.0%}",
            Text(bar(stage["share"], _BAR), style="cyan" if stage["stage"] == "forward" else "magenta"),
        )
    return table


def _range(stage: Json) -> str:
    """Between what an estimate lies; nothing for what is measured."""
    return f"({stage['low']:g}-{stage['high']:g} ms)" if "low" in stage else ""


def _levers(model: Json) -> list[RenderableType]:
    worth = [one for one in model["levers"] if one["verdict"] != "ineligible"]
    shown = (worth or model["levers"])[:_LEVERS]
    if not worth and len({one["why"] for one in shown}) == 1:
        return [Text(f"levers: {shown[0]['why']}")]
    out: list[RenderableType] = [Text("levers, cheapest first")]
    for one in shown:
        out.append(Text.assemble("  ", (one["lever"], "bold"), f" ({one['verdict']}): ", (one["why"], "dim")))
        for name, text in (one["setting"] or {}).items():
            out += [Text(f"      {name}: {line}", style="cyan") for line in text.splitlines()]
    return out


def _open(model: Json) -> list[RenderableType]:
    return [Text.assemble(("would settle ", "dim"), line) for line in model["would_settle"]]


def _warnings(model: Json) -> list[RenderableType]:
    return [Text(f"! {one['code']}: {one['message']}", style="yellow") for one in model["warnings"]]
