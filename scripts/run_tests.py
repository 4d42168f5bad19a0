"""`make test`: the stages of the test suite, and one closing line over all of them.

What is built comes first. Stages in which no time is measured then run beside each other, with their output in
one piece when they end: two that compute; or the two halves of the loop's tests, which often wait and have a
cluster each, and what fits in between. The tests of the cluster and the goal run have the machine to
themselves. A file of the loop's tests in which something failed beside other stages is run once more, alone, at the
end; when it holds then, the end tells what had failed. Stages that need root are left out without it, and the end says
so. Results in JUnit's form and the output of each stage are left in build/test-results/.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO

from scripts.test_results import Counts, counts_of, failed_files

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
PYTHON = sys.executable
#: what an interrupted stage gets to take its cluster down
CLEANUP_SECONDS = 120
#: memory for one of the stages that run at the same time: a cluster with its servers
STAGE_GIB = 3.5
#: markers of tests that no other stage may collect
HEAVY = ("accuracy", "integration", "triton", "e2e", "loop", "goal")


@dataclass(frozen=True)
class Stage:
    """A command and what it needs. A stage with a `marker` is a pytest run over the tests so marked.

    `files`: only those below tests/; such a stage has a cluster of its own. `together`: no time is measured in
    it, so that this many stages, neighbours with the same number, may run at the same time. `gentle`: with what
    the processors have left. `again`: its servers keep to emulated times that neighbours may disturb, so that a file
    which failed beside them is run once more without.
    """

    name: str
    purpose: str
    command: tuple[str, ...] = ()
    marker: str = ""
    files: tuple[str, ...] = ()
    root: bool = False
    long: bool = False
    together: int = 1
    gentle: bool = False
    again: bool = False
    minutes: int = 30


STAGES = (
    Stage("build", "the cluster's programs and the images, from the cache if they are there",
          (PYTHON, "-m", "scripts.build_all"), minutes=60),
    Stage("check", "style, types, layers, generated files, unit tests",
          (PYTHON, "scripts/run_checks.py"), together=2),
    Stage("go", "the Go parts of the development cluster", ("bash", "scripts/check_go.sh"), together=2),
    Stage("install", "the install step in a minimal Debian",
          ("bash", "scripts/check_install_minimal.sh"), root=True, together=2),
    Stage("e2e", "on a development cluster", marker="e2e", root=True, minutes=45),
    Stage("loop-repair", "the loop on a cluster: watch, repair, keep, capacity", marker="loop", root=True, long=True,
          files=("e2e/test_loop_repair.py", "e2e/test_loop_capacity.py"), together=3, again=True),
    Stage("loop-faults", "the loop on another: faults, a pool", marker="loop", root=True, long=True,
          files=("e2e/test_loop_faults.py", "e2e/test_loop_pool.py"), together=3, again=True),
    Stage("integration", "against a real API server", marker="integration", together=3, gentle=True),
    Stage("triton", "against a real Triton", marker="triton", together=3, gentle=True),
    Stage("accuracy", "the diagnosis against simulated pipelines", marker="accuracy", together=3, gentle=True),
    Stage("goal", "the demo and its goals", marker="goal", root=True, long=True, minutes=65),
)  # fmt: skip


def pytest_command(stage: Stage) -> tuple[str, ...]:
    others = " or ".join(name for name in HEAVY if name != stage.marker)
    chosen = [f"tests/{name}" for name in stage.files] or ["tests"]
    return (
        PYTHON, "-m", "pytest", *chosen, "-v", "--durations=5", "-m", f"{stage.marker} and not ({others})",
        f"--junitxml={RESULTS / f'{stage.name}.xml'}",
    )  # fmt: skip


def environment(stage: Stage) -> dict[str, str]:
    """A stage's own: where it has a cluster to itself, the folder that names it."""
    own = {"DEVCLUSTER_STATE": str(ROOT / "build" / f"devcluster-{stage.name}")} if stage.files else {}
    return {**os.environ, **own}


def run(stage: Stage, seconds: float) -> Counts:
    """Runs one stage to its end, or for `seconds`, and counts; one that is no pytest run counts as one test."""
    command = pytest_command(stage) if stage.marker else stage.command
    if stage.gentle:
        command = ("nice", "-n", "19", *command)
    if stage.together > 1:
        log = RESULTS / f"{stage.name}.log"
        with log.open("wb") as output:
            code = run_for(command, seconds, environment(stage), output)
        print(f"\n{log.read_text(errors='replace').rstrip()}", flush=True)
    else:
        code = run_for(command, seconds, environment(stage))
    if code is None:
        print(f"{stage.name}: not done after {seconds / 60:.0f} minutes, stopped", flush=True)
        return Counts(failed=1)
    if not stage.marker:
        counts = Counts(failed=1) if code else Counts(passed=1)
        if stage.name == "check" and (RESULTS / "unit.xml").exists():
            counts.add(counts_of(RESULTS / "unit.xml"))
        return counts
    counts = counts_of(RESULTS / f"{stage.name}.xml")
    if code and not counts.failed:
        # A crash of the runner, or no test at all, must not pass for success.
        print(f"{stage.name}: pytest ended with {code} and without a failed test", flush=True)
        counts.failed = 1
    return counts


def run_for(
    command: tuple[str, ...], seconds: float, variables: Mapping[str, str], output: IO[bytes] | None = None
) -> int | None:
    """The exit code, or None after `seconds`: then an interrupt lets fixtures clean up before the kill."""
    errors = None if output is None else subprocess.STDOUT
    process = subprocess.Popen(
        command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
    )
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


def run_all(stages: list[Stage], one: Callable[[Stage], Counts], memory_gib: float) -> dict[str, Counts]:
    """Counts by stage: in order, but neighbours that may run at the same time do, as many as there is memory for."""
    counts: dict[str, Counts] = {}
    for width, group in groupby(stages, key=lambda stage: stage.together):
        with ThreadPoolExecutor(max_workers=max(1, min(width, int(memory_gib / STAGE_GIB)))) as pool:
            several = list(group)
            counts |= dict(zip((stage.name for stage in several), pool.map(one, several), strict=True))
    return counts


def second_try(stage: Stage, first: Counts, one: Callable[[Stage], Counts]) -> Counts:
    """The stage's files in which a test failed, once more: `first`, with these failures told rather than counted if
    they hold now. Without a report there is nothing to go by."""
    files = failed_files(RESULTS / f"{stage.name}.xml")
    if not files:
        return first
    alone = replace(stage, name=f"{stage.name}-again", purpose=f"{', '.join(files)} without a neighbour", files=files,
                    together=1)  # fmt: skip
    counts = one(alone)
    if counts.failed or counts.inconclusive:
        return replace(first, failures=first.failures + counts.failures)
    return replace(
        first, passed=first.passed + first.failed, failed=0, failures=[], second_tries=first.failures
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    names = [stage.name for stage in STAGES]
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the tests of the loop and the goal run")
    parser.add_argument("--only", action="append", metavar="STAGE", choices=names, help="may be repeated")
    parser.add_argument(
        "--minutes", type=float, default=240, help="for everything; what is not done by then has failed"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in (*RESULTS.glob("*.xml"), *RESULTS.glob("*.log")):
        old.unlink()
    chosen = [
        stage
        for stage in STAGES
        if (not options.only or stage.name in options.only) and not (options.quick and stage.long)
    ]
    left_out = [stage for stage in chosen if stage.root and os.geteuid() != 0]
    began = time.monotonic()

    def one(stage: Stage) -> Counts:
        print(f"\n=== {stage.name}: {stage.purpose}", flush=True)
        started = time.monotonic()
        left_s = max(0.0, options.minutes * 60 - (started - began))
        counts = run(stage, min(stage.minutes * 60, left_s))
        now = time.monotonic()
        print(
            f"=== {stage.name}: {counts.word}, {now - started:.0f} s, {now - began:.0f} s in all", flush=True
        )
        return counts

    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    by_stage = run_all([stage for stage in chosen if stage not in left_out], one, memory_gib)
    for stage in chosen:
        if stage.again and by_stage.get(stage.name, Counts()).failed:
            by_stage[stage.name] = second_try(stage, by_stage[stage.name], one)
    return conclude(by_stage, left_out)


def conclude(by_stage: dict[str, Counts], left_out: list[Stage]) -> int:
    """Print what counts; the exit code. What was inconclusive is told, and is neither passed nor failed."""
    total = Counts()
    for counts in by_stage.values():
        total.add(counts)
    print()
    for stage in left_out:
        print(f"left out without root: {stage.name} ({stage.purpose})")
    for reason in total.inconclusive:
        print(reason)
    for reason in total.second_tries:
        print(f"FAILED beside other stages, passed alone: {reason}")
    for reason in total.failures:
        print(f"FAILED {reason}")
    if total.failed:
        print(f"failed: {', '.join(name for name, counts in by_stage.items() if counts.failed)}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
