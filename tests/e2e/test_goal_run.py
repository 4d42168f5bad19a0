"""The whole demo, once: every goal of the closed loop is asserted on its report.

A machine that is too noisy proves nothing: the run is then skipped as inconclusive, with how late the machine was.
Whoever runs the suite must show that reason (scripts/run_tests.py does); it is neither passed nor failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.goals import GOALS, Goal

pytestmark = [pytest.mark.goal, pytest.mark.timeout(3600)]

REPOSITORY = Path(__file__).resolve().parents[2]
TOO_NOISY = 3
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a development cluster needs root")

Report = dict[str, Any]


@pytest.fixture(scope="module")
def report() -> Report:
    """The report of one run of the demo, on a cluster of its own; it stays in build/test-results/goal."""
    output = REPOSITORY / "build" / "test-results" / "goal"
    shutil.rmtree(output, ignore_errors=True)
    state = REPOSITORY / "build" / "goal-run"
    command = [sys.executable, "-m", "demo", "--output", str(output), "--state", str(state)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = ran.stdout + ran.stderr
    output.mkdir(parents=True, exist_ok=True)
    (output / "demo.log").write_text(told, "utf-8")
    if ran.returncode not in (0, 1, TOO_NOISY):
        pytest.fail(f"the demo could not run (exit code {ran.returncode})\n{told[-6000:]}", pytrace=False)
    found: Report = json.loads((output / "report.json").read_text("utf-8"))
    if ran.returncode == TOO_NOISY:
        pytest.skip(f"INCONCLUSIVE: {found['verdict']}")
    assert (ran.returncode == 0) == all(goal["met"] for goal in found["goals"])
    return found


def at(report: Report, key: str) -> Any:
    value: Any = report
    for part in key.split("."):
        value = value[part]
    return value


@needs_root
@pytest.mark.parametrize("goal", GOALS, ids=[goal.key for goal in GOALS])
def test_goal_holds(report: Report, goal: Goal) -> None:
    measured = at(report, goal.key)
    assert goal.holds(measured), f"{goal.key} is {measured}, must be {goal.wanted} ({goal.says})"


@needs_root
def test_preprocessing_is_the_first_lever_and_the_gpu_the_second(report: Report) -> None:
    first, second, *_ = report["levers_used"]
    assert "preprocess" in first.lower()
    assert any(word in second.lower() for word in ("batch", "instance"))


@needs_root
def test_the_windows_are_long_enough_and_hold_whole_bursts(report: Report) -> None:
    for name in ("baseline", "tuned", "doubled"):
        start, end = report[name]["window"]  # to a tenth of a second
        periods = (end - start) / 20
        assert periods == pytest.approx(round(periods), abs=0.01)
        assert round(periods) >= 6


@needs_root
def test_every_decision_says_why(report: Report) -> None:
    assert report["decisions"]
    assert all(decision["reason"] and decision["message"] for decision in report["decisions"])
