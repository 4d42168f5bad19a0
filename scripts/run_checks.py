"""`make check`: style, types, layers, generated files and unit tests, side by side.

Prints one line per part as it ends, and the whole output of the parts that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent
SOURCES = ("operator", "tuner", "devcluster", "demo", "tests", "benchmarks", "scripts")


@dataclass(frozen=True)
class Part:
    """One command of the check; `shown` parts print their last line even when they pass."""

    name: str
    command: tuple[str, ...]
    shown: bool = False


@dataclass(frozen=True)
class Result:
    part: Part
    code: int
    seconds: float
    output: str


def python(*arguments: str) -> tuple[str, ...]:
    return (PYTHON, *arguments)


def parts(results: Path) -> list[Part]:
    """The longest ones come first, so that two cores end at about the same time."""
    sources = [name for name in SOURCES if any((ROOT / name).rglob("*.py"))]
    unit = ("-m", "pytest", "tests/unit", "-q", "-n", "2", "--dist", "worksteal", "--timeout", "120")
    return [
        Part("types", python("-m", "mypy", *sources)),
        Part("unit tests", python(*unit, f"--junitxml={results / 'unit.xml'}"), shown=True),
        Part("layers", (str(BIN / "lint-imports"),)),
        Part("style", python("-m", "ruff", "check", "--output-format", "concise", ".")),
        Part("format", python("-m", "ruff", "format", "--check", "--output-format", "concise", ".")),
        Part("locks", python("scripts/check_locks.py")),
        Part("links", python("scripts/check_links.py")),
        Part("generated files", python("scripts/generate.py", "--check")),
    ]


def run(part: Part) -> Result:
    began = time.monotonic()
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        part.command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return Result(part, done.returncode, time.monotonic() - began, done.stdout)


def main() -> int:
    results = ROOT / "build" / "test-results"
    results.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    failed: list[Result] = []
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        for future in as_completed([pool.submit(run, part) for part in parts(results)]):
            result = future.result()
            word = "ok" if result.code == 0 else "FAILED"
            lines = result.output.strip().splitlines()
            tail = f"  {lines[-1].strip('= ')}" if result.part.shown and lines else ""
            print(f"  {result.part.name:<16} {word:<7}{result.seconds:5.1f} s{tail}", flush=True)
            if result.code:
                failed.append(result)
    for result in failed:
        print(
            f"\n--- {result.part.name}: {' '.join(result.part.command)}\n{result.output.rstrip()}", flush=True
        )
    print(
        f"check: {'FAILED' if failed else 'all is well'} after {time.monotonic() - began:.0f} s", flush=True
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
