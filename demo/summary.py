"""The end of a run on the terminal: before and after, goals, decisions, what to try next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.goals import Figures, Result, levers_used, mean_of
from demo.run_data import Run, Sample, WindowName


def show(console: Console, run: Run, found: Figures, judged: Sequence[Result], verdict: str) -> None:
    """Print everything; the verdict comes last, where people look."""
    console.print(_before_and_after(run, found))
    console.print(_goals(judged))
    console.print(_decisions(run))
    used = " → ".join(levers_used(run.decisions)) or "none"
    console.print(f"levers used, in order: {used}", markup=False)
    style = "bold green" if all(one.met for one in judged) and not run.unfinished else "bold red"
    console.print(Text(verdict, style=style))


def shown(value: float | str | None) -> str:
    """A figure as people read it."""
    if value is None:
        return "not measured"
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def next_commands(kubeconfig: Path) -> str:
    """Three commands to try on the cluster that was left up."""
    return f"""
The cluster is still up. Try:
  export KUBECONFIG={kubeconfig}
  kubectl -n serving describe inferenceslo assistant
  kubectl -n serving delete pod -l inferenceslo.dev/server=chat --wait=false   # they come back tuned
Take it down with: python -m devcluster down"""


def _before_and_after(run: Run, found: Figures) -> Table:
    table = Table(title="Before and after", title_justify="left")
    for column in ("", "as found", "repaired", "twice the traffic"):
        table.add_column(column, justify="left" if not column else "right")
    keys = ("baseline.p99_ms", "tuned.p99_ms", "doubled.p99_ms")
    table.add_row("p99, ms", *(shown(found[key]) for key in keys))
    rates = []
    for name in WindowName:
        window = run.windows.get(name)
        count = sum(window.start <= r.scheduled < window.end for r in run.records) if window else 0
        rates.append(f"{count / window.seconds:.1f}" if window else "–")
    table.add_row("requests/s", *rates)
    table.add_row("GPU busy", *_shares(run, lambda sample: sample.gpu_busy))
    table.add_row("CPU of the GPU pods", *_shares(run, lambda sample: sample.cpu))
    return table


def _shares(run: Run, figure: Callable[[Sample], float | None]) -> list[str]:
    """The mean of a figure in each window."""
    windows = [run.windows.get(name) for name in WindowName]
    means = [mean_of(run.samples, window, figure) if window else None for window in windows]
    return ["–" if mean is None else f"{mean:.0%}" for mean in means]


def _goals(judged: Sequence[Result]) -> Table:
    table = Table(title="Goals", title_justify="left")
    table.add_column("key", no_wrap=True)
    table.add_column("must be", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in judged:
        mark = Text("met", style="green") if one.met else Text("MISSED", style="bold red")
        table.add_row(one.goal.key, one.goal.wanted, shown(one.measured), mark)
    return table


def _decisions(run: Run) -> Table:
    table = Table(title="Decisions", title_justify="left")
    table.add_column("s after Auto", justify="right", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("why")
    zero = run.auto_at or run.started
    for decision in run.decisions:
        table.add_row(f"{decision.time - zero:.0f}", decision.reason, Text(decision.message))
    return table
