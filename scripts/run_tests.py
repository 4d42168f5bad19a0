"""`make test`: the stages of the test suite, one after the other, and one closing line over all of them.

Stages that need root are skipped without it, and the end says so. Results in JUnit's form are left in
build/test-results/.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET  # reads only what pytest wrote a moment ago
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
PYTHON = sys.executable
#: what an interrupted stage gets to take its cluster down
CLEANUP_SECONDS = 120
#: markers of tests that no other stage may collect
HEAVY = ("integration", "triton", "e2e", "goal")


@dataclass(frozen=True)
class Stage:
    """A command and what it needs. A stage with a `marker` is a pytest run over the tests so marked."""

    name: str
    purpose: str
    command: tuple[str, ...] = ()
    marker: str = ""
    root: bool = False
    goal: bool = False
    minutes: int = 30


STAGES = (
    Stage("check", "style, types, layers, generated files, unit tests", (PYTHON, "scripts/run_checks.py")),
    Stage("go", "the Go parts of the development cluster", ("bash", "scripts/check_go.sh")),
    Stage(
        "install",
        "the install step in a minimal Debian",
        ("bash", "scripts/check_install_minimal.sh"),
        root=True,
    ),
    Stage("integration", "against a real API server", marker="integration"),
    Stage("triton", "against a real Triton", marker="triton"),
    Stage("e2e", "on a development cluster", marker="e2e", root=True, minutes=45),
    Stage("goal", "the demo and its goals", marker="goal", root=True, goal=True, minutes=65),
)


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def counts_of(report: Path) -> Counts:
    """Passed, failed and skipped tests of a JUnit report; a report that is missing counts as one failure."""
    if not report.exists():
        return Counts(failed=1)
    total = Counts()
    for suite in ET.parse(report).iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        total.add(Counts(int(suite.get("tests", 0)) - failed - skipped, failed, skipped))
    return total


def pytest_command(marker: str) -> tuple[str, ...]:
    others = " or ".join(name for name in HEAVY if name != marker)
    return (
        PYTHON, "-m", "pytest", "tests", "-v", "--durations=5", "-m", f"{marker} and not ({others})",
        f"--junitxml={RESULTS / f'{marker}.xml'}",
    )  # fmt: skip


def run(stage: Stage, seconds: float) -> Counts:
    """Runs one stage to its end, or for `seconds`, and counts; one that is no pytest run counts as one test."""
    command = pytest_command(stage.marker) if stage.marker else stage.command
    code = run_for(command, seconds)
    if code is None:
        print(f"{stage.name}: not done after {seconds / 60:.0f} minutes, stopped", flush=True)
        return Counts(failed=1)
    if not stage.marker:
        counts = Counts(failed=1) if code else Counts(passed=1)
        if stage.name == "check" and (RESULTS / "unit.xml").exists():
            counts.add(counts_of(RESULTS / "unit.xml"))
        return counts
    counts = counts_of(RESULTS / f"{stage.marker}.xml")
    if code and not counts.failed:
        # A crash of the runner, or no test at all, must not pass for success.
        print(f"{stage.name}: pytest ended with {code} and without a failed test", flush=True)
        counts.failed = 1
    return counts


def run_for(command: tuple[str, ...], seconds: float) -> int | None:
    """The exit code, or None after `seconds`: then an interrupt lets fixtures clean up before the kill."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:
        # The terminal has told the child, too.
        process.wait(CLEANUP_SECONDS)
        raise
    try:
        process.wait(CLEANUP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the goal run")
    parser.add_argument(
        "--only", action="append", metavar="STAGE", choices=[s.name for s in STAGES], help="may be repeated"
    )
    parser.add_argument(
        "--minutes", type=float, default=240, help="for everything; what is not done by then has failed"
    )
    options = parser.parse_args(arguments)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.glob("*.xml"):
        old.unlink()

    total, left_out, failures, began = Counts(), [], [], time.monotonic()
    for stage in STAGES:
        if (options.only and stage.name not in options.only) or (options.quick and stage.goal):
            continue
        if stage.root and os.geteuid() != 0:
            left_out.append(stage)
            continue
        print(f"\n=== {stage.name}: {stage.purpose}", flush=True)
        started = time.monotonic()
        left_s = max(0.0, options.minutes * 60 - (started - began))
        counts = run(stage, min(stage.minutes * 60, left_s))
        total.add(counts)
        if counts.failed:
            failures.append(stage.name)
        word = f"FAILED ({counts.failed})" if counts.failed else "ok"
        print(
            f"=== {stage.name}: {word}, {time.monotonic() - started:.0f} s, {time.monotonic() - began:.0f} s in all",
            flush=True,
        )

    print()
    for stage in left_out:
        print(f"left out without root: {stage.name} ({stage.purpose})")
    if failures:
        print(f"failed: {', '.join(failures)}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
