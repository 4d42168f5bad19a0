"""The checks themselves: one that finds nothing because it looks at nothing is worse than none."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from scripts import check_links, check_locks, generate_api_docs, run_tests
from scripts.run_tests import ROOT, STAGES, Stage, conclude, run_all, second_try
from scripts.test_results import Counts, counts_of, failed_files

HASH = "    --hash=sha256:" + "0" * 64


def test_a_lock_with_hashes_and_no_address_is_fine(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"aiohttp==3.14.5 \\\n{HASH}\n    # via inferenceslo\nPyYAML==6.0.4 \\\n{HASH}\n")
    assert check_locks.read_lock(lock) == ({"aiohttp": "3.14.5", "pyyaml": "6.0.4"}, [])


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (f"aiohttp==3.14.5\nkopf==1.45.2 \\\n{HASH}\n", "requirements.lock:2: aiohttp has no --hash"),
        ("kopf==1.45.2\n", "requirements.lock: kopf has no --hash"),
        (
            f"--index-url https://pypi.example.com/simple\nkopf==1.45.2 \\\n{HASH}\n",
            "requirements.lock:1: an address",
        ),
        (
            f"kopf @ https://example.com/kopf.whl\nkopf==1.45.2 \\\n{HASH}\n",
            "requirements.lock:1: an address",
        ),
    ],
)
def test_what_a_lock_must_not_have_is_found_with_its_line(tmp_path: Path, text: str, finding: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(text)
    (problem,) = check_locks.read_lock(lock)[1]
    assert problem.startswith(finding)


def test_the_locks_of_this_repository_are_sound() -> None:
    assert check_locks.check() == []


def test_dead_links_and_anchors_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Other\n\n## Stop and `undo`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#stop-and-undo) [c](https://example.com/x) [own](#here)\n\n# Here\n\n"
        "[gone](missing.md)\n[no heading](other.md#start)\n\n```\n[code](nowhere.md)\n```\n"
    )
    assert check_links.check(page) == [
        "page.md:5: missing.md does not exist",
        "page.md:6: other.md has no heading #start",
    ]


def test_a_report_is_counted_and_a_missing_one_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text('<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3"/></testsuites>')
    assert counts_of(report) == Counts(passed=4, failed=3, skipped=3)
    assert counts_of(tmp_path / "none.xml") == Counts(failed=1)


def test_what_was_inconclusive_is_neither_passed_nor_failed_and_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = "INCONCLUSIVE: machine too noisy: doubled: the probe woke up 22.1 ms late (p99)"
    skips = "".join(f'<testcase><skipped message="{why}"/></testcase>' for why in (late, late, "needs root"))
    report = tmp_path / "goal.xml"
    report.write_text(f'<testsuites><testsuite tests="4" skipped="3">{skips}</testsuite></testsuites>')
    counts = counts_of(report)
    assert counts.word == "INCONCLUSIVE"
    assert conclude({"check": Counts(passed=7), "goal": counts}, []) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [late, "8 passed, 0 failed, 3 skipped"]


def test_a_failure_decides_and_what_was_left_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    e2e = Stage("e2e", "on a cluster", root=True)
    assert conclude({"check": Counts(passed=7), "go": Counts(failed=1, inconclusive=["x"])}, [e2e]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "left out without root: e2e (on a cluster)" in said
    assert said[-2:] == ["failed: go", "7 passed, 1 failed, 0 skipped"]


LOOP = Stage(
    "loop", "the loop", marker="loop", files=("e2e/test_a.py", "e2e/test_b.py"), together=3, again=True
)
FAILED_REPORT = """<testsuites><testsuite tests="4" failures="1" errors="1">
  <testcase classname="tests.e2e.test_a" name="test_fine"/>
  <testcase classname="tests.e2e.test_b" name="test_late"><failure message="AssertionError: not within 90 s&#10;more"/></testcase>
  <testcase classname="tests.e2e.test_b.TestGroup" name="test_next"><error message="no server"/></testcase>
  <testcase classname="tests.e2e.test_a" name="test_too"/>
</testsuite></testsuites>"""


def test_a_failed_test_is_told_with_its_file_and_the_first_line_of_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "loop.xml"
    report.write_text(FAILED_REPORT)
    assert failed_files(report) == ("e2e/test_b.py",)
    assert failed_files(tmp_path / "none.xml") == ()
    assert conclude({"loop": counts_of(report)}, []) == 1
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "FAILED test_b.py::test_late: AssertionError: not within 90 s",
        "FAILED test_b.py::test_next: no server",
        "failed: loop",
        "2 passed, 2 failed, 0 skipped",
    ]


def test_a_file_of_the_loop_that_failed_is_run_once_more_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    (tmp_path / "loop.xml").write_text(FAILED_REPORT)
    first = counts_of(tmp_path / "loop.xml")
    tried: list[Stage] = []

    def holds(stage: Stage) -> Counts:
        tried.append(stage)
        return Counts(passed=2)

    assert conclude({"loop": second_try(LOOP, first, holds)}, []) == 0
    assert [(stage.name, stage.files, stage.together) for stage in tried] == [
        ("loop-again", ("e2e/test_b.py",), 1)
    ]
    said = capsys.readouterr().out.splitlines()
    assert (
        said[1]
        == "FAILED beside other stages, passed alone: test_b.py::test_late: AssertionError: not within 90 s"
    )
    assert said[-1] == "4 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    "second", [Counts(failed=1), Counts(skipped=1, inconclusive=["INCONCLUSIVE: noisy"])]
)
def test_a_second_failure_or_one_that_shows_nothing_leaves_the_first_standing(
    second: Counts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    (tmp_path / "loop.xml").write_text(FAILED_REPORT)
    first = counts_of(tmp_path / "loop.xml")
    assert second_try(LOOP, first, lambda _: second).failed == 2


def test_a_stage_without_a_report_has_no_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    assert second_try(LOOP, Counts(failed=1), lambda _: pytest.fail("nothing to run")).failed == 1


def test_every_file_with_tests_of_the_loop_is_in_one_stage() -> None:
    marked = [p for p in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.loop" in p.read_text("utf-8")]
    named = [ROOT / "tests" / name for stage in STAGES if stage.marker == "loop" for name in stage.files]
    assert sorted(named) == sorted(set(marked) - {Path(__file__)})


def test_a_stage_that_measures_has_the_machine_to_itself() -> None:
    """Two that may run at the same time meet; the others find nobody and keep their order."""
    stages = [Stage("build", ""), *(Stage(name, "", together=2) for name in "ab"), Stage("e2e", "")]
    meeting = threading.Barrier(2)
    running: set[str] = set()
    seen: list[tuple[str, int]] = []

    def one(stage: Stage) -> Counts:
        running.add(stage.name)
        if stage.together > 1:
            meeting.wait(timeout=30)
        else:
            seen.append((stage.name, len(running)))
        running.discard(stage.name)
        return Counts(passed=1)

    counts = run_all(stages, one, memory_gib=8)
    assert list(counts) == ["build", "a", "b", "e2e"]
    assert seen == [("build", 1), ("e2e", 1)]


def test_no_more_stages_run_at_the_same_time_than_there_is_memory_for() -> None:
    running: set[str] = set()
    most = 0

    def one(stage: Stage) -> Counts:
        nonlocal most
        running.add(stage.name)
        time.sleep(0.05)
        most = max(most, len(running))
        running.discard(stage.name)
        return Counts(passed=1)

    run_all([Stage(name, "", together=4) for name in "abcd"], one, memory_gib=7.5)
    assert most <= 2
    run_all([Stage(name, "", together=4) for name in "abcd"], one, memory_gib=1)


def test_the_reference_has_every_field_with_type_default_and_rules() -> None:
    page = generate_api_docs.page()
    assert "| `mode` | `Observe` \\| `Recommend` \\| `Auto` | `Observe` |" in page
    assert "| `maxGPUs` | whole number | **required** |" in page
    assert "### spec.servers[].models[].slo.latency" in page
    assert "### status.models[].breakdown.stages[]" in page
    assert "* every server's pool must be a name of spec.pools" in page
