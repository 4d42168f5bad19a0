"""When a failed test of the loop counts, and when the machine was too busy for it to show anything."""

from __future__ import annotations

import pytest

from scripts.test_results import INCONCLUSIVE
from tests.e2e.noise import TOO_LATE_MS, Noise, excuse


def test_a_failure_counts_on_a_machine_that_keeps_time() -> None:
    assert excuse(0.0) is None
    assert excuse(TOO_LATE_MS) is None


def test_a_failure_on_a_late_machine_is_told_with_the_figure_and_in_the_runner_s_words() -> None:
    why = excuse(431.0)
    assert why is not None
    assert why.startswith(INCONCLUSIVE)
    assert "431 ms late" in why


def test_the_worst_test_of_a_file_stands_for_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Noise()
    lateness = iter([12.0, 431.0, 9.0, None])
    monkeypatch.setattr(noise._probe, "p99_ms", lambda start, end: next(lateness))
    assert [noise.note("a.py", at, at + 10.0) for at in (0.0, 10.0, 20.0)] == [12.0, 431.0, 431.0]
    assert noise.note("b.py", 30.0, 40.0) == 0.0


def test_a_test_of_a_few_seconds_says_nothing_about_the_machine() -> None:
    assert Noise().note("a.py", 0.0, 4.0) == 0.0
