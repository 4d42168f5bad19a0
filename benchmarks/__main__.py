"""`python -m benchmarks`: prints the figures and writes build/bench/results.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import decisions, diagnosis, load_generator, queries
from benchmarks.figure import Figure

OUTPUT = Path("build/bench/results.json")
SUBJECTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "decisions": decisions.figures,
    "queries": queries.figures,
    "diagnosis": diagnosis.figures,
    "load-generator": load_generator.figures,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen subjects (all by default); return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all when left out"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    unknown = [subject for subject in options.subjects if subject not in SUBJECTS]
    if unknown:
        parser.error(f"no subject {unknown[0]!r}: choose of {', '.join(SUBJECTS)}")
    found = [figure for subject in options.subjects or SUBJECTS for figure in SUBJECTS[subject]()]

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading, side in (
        ("SUBJECT", "left"),
        ("FIGURE", "left"),
        ("VALUE", "right"),
        ("", "left"),
        ("", "left"),
    ):
        table.add_column(heading, justify="right" if side == "right" else "left")
    for figure in found:
        value = f"{figure.value:,.0f}" if figure.value >= 100 or not figure.unit else f"{figure.value:.2f}"
        table.add_row(figure.subject, figure.name, value, figure.unit, figure.says)
    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table)

    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine, "figures": [asdict(figure) for figure in found]}
    options.output.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
