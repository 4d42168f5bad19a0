"""The live view: a table on a terminal, a line every few seconds anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.goals import SLO_MS
from demo.run_data import Decision, Sample, Stage
from demo.watching import Watcher

LINE_EVERY_S = 10.0
STAGE_COLOURS = {
    Stage.PREPROCESS_WAIT: "red",
    Stage.PREPROCESS: "yellow",
    Stage.FORWARD_WAIT: "magenta",
    Stage.FORWARD: "cyan",
    Stage.POSTPROCESS: "green",
    Stage.OTHER: "bright_black",
}
_BAR = 56


class Display:
    """Says lines and shows what a watcher sees, by what the console can do."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._phase_began = self._began
        self._phase = ""

    def say(self, text: str) -> None:
        """One line with the seconds since the start."""
        seconds = f"{time.monotonic() - self._began:6.1f}s  "
        self.console.print(Text(seconds, style="bright_black") + Text(text), soft_wrap=True)

    @contextlib.asynccontextmanager
    async def showing(self, watcher: Watcher) -> AsyncIterator[None]:
        """Show the watcher's view until the context ends."""
        async with contextlib.AsyncExitStack() as stack:
            if self.console.is_terminal:
                live = stack.enter_context(Live(console=self.console, refresh_per_second=2, transient=True))
                showing = asyncio.create_task(self._tables(watcher, live))
            else:
                showing = asyncio.create_task(self._lines(watcher))
            try:
                yield
            finally:
                showing.cancel()

    async def _tables(self, watcher: Watcher, live: Live) -> None:
        while True:
            if watcher.phase != self._phase:
                self._phase, self._phase_began = watcher.phase, time.monotonic()
            clock = (
                f"{_clock(time.monotonic() - self._phase_began)} of {_clock(time.monotonic() - self._began)}"
            )
            sample = watcher.samples[-1] if watcher.samples else None
            live.update(table(watcher.phase, clock, sample, watcher.decisions))
            await asyncio.sleep(1)

    async def _lines(self, watcher: Watcher) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            if watcher.samples:
                self.say(line(watcher.phase, watcher.samples[-1], watcher.decisions))


def table(phase: str, clock: str, sample: Sample | None, decisions: Sequence[Decision]) -> RenderableType:
    """The whole view for a terminal."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column()
    rows.add_row("phase", f"{phase}  [bright_black]{clock}[/]")
    if sample is not None:
        rows.add_row("rate", f"{sample.rate_rps:.1f} requests/s")
        p99 = Text("20 s ") + _latency(sample.p99_20s_ms) + Text("   60 s ") + _latency(sample.p99_60s_ms)
        rows.add_row("p99", p99 + Text(f"   SLO {SLO_MS:.0f} ms", style="bright_black"))
        rows.add_row("where time goes", bar(sample))
        rows.add_row("", legend(sample))
        rows.add_row("bottleneck", sample.bottleneck or "not known yet")
        rows.add_row("GPU busy", _share(sample.gpu_busy) + f"  [bright_black]{sample.gpus} GPUs[/]")
        rows.add_row(
            "CPU busy", _share(sample.cpu) + f"  [bright_black]of the GPU pods' limits{_pool(sample)}[/]"
        )
        rows.add_row("settings", Text(sample.settings or "–"))
    last = decisions[-3:]
    for at, decision in enumerate(reversed(last)):
        rows.add_row("decisions" if at == 0 else "", _decision(decision))
    return Panel(Group(rows), title="InferenceSLO demo", border_style="cyan", title_align="left")


def bar(sample: Sample) -> Text:
    """The stages as a bar, each as wide as its share of the mean."""
    total = sum(sample.stages_ms.values())
    text = Text()
    for stage, mean in sample.stages_ms.items():
        text.append("█" * round(mean / total * _BAR) if total else "", style=STAGE_COLOURS[stage])
    return text + Text(f" {total:.0f} ms mean" if total else "–")


def legend(sample: Sample) -> Text:
    """The stages with their times, in the bar's colours."""
    return Text("  ").join(
        Text(f"■ {stage.value} {mean:.0f}", style=STAGE_COLOURS[stage])
        for stage, mean in sample.stages_ms.items()
    )


def line(phase: str, sample: Sample, decisions: Sequence[Decision]) -> str:
    """The view in one line, for logs."""
    stages = " ".join(f"{stage.value}={mean:.0f}" for stage, mean in sample.stages_ms.items())
    parts = [
        phase,
        f"{sample.rate_rps:.1f}/s",
        f"p99 {_latency(sample.p99_20s_ms).plain} (20 s) {_latency(sample.p99_60s_ms).plain} (60 s)",
        stages or "no breakdown yet",
        f"GPU {_share(sample.gpu_busy)} of {sample.gpus}",
        f"CPU {_share(sample.cpu)}{_pool(sample)}",
        sample.bottleneck or "no bottleneck named",
    ]
    return " | ".join(parts + ([decisions[-1].reason] if decisions else []))


def _decision(decision: Decision) -> Text:
    when = time.strftime("%H:%M:%S ", time.localtime(decision.time))
    return (
        Text(when, style="bright_black")
        + Text(f"{decision.reason} ", style="bold")
        + Text(decision.message[:160])
    )


def _latency(milliseconds: float | None) -> Text:
    if milliseconds is None:
        return Text("–")
    return Text(f"{milliseconds:.0f} ms", style="bold green" if milliseconds <= SLO_MS else "bold red")


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def _pool(sample: Sample) -> str:
    return f", pool of {sample.pool_replicas}" if sample.pool_replicas else ""


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
