"""What stages of the test suite say they did: reports in JUnit's form, counted and added up."""

from __future__ import annotations

import xml.etree.ElementTree as ET  # reads only what pytest wrote a moment ago
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: how a skipped test says that it ran and showed nothing
INCONCLUSIVE = "INCONCLUSIVE"
#: of a failure's first line, so much is told at the end
WORDS = 240


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: why tests were skipped that ran and showed nothing
    inconclusive: list[str] = field(default_factory=list)
    #: the tests that failed, with the first line of why
    failures: list[str] = field(default_factory=list)
    #: what failed beside other stages and held when it was run alone
    second_tries: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.inconclusive += [reason for reason in other.inconclusive if reason not in self.inconclusive]
        self.failures += other.failures
        self.second_tries += other.second_tries

    @property
    def word(self) -> str:
        if self.failed:
            return f"FAILED ({self.failed})"
        return INCONCLUSIVE if self.inconclusive else "ok"


def counts_of(report: Path) -> Counts:
    """Passed, failed and skipped tests of a report; a report that is missing counts as one failure."""
    if not report.exists():
        return Counts(failed=1)
    total = Counts()
    for suite in ET.parse(report).iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        reasons = [str(case.get("message")) for case in suite.iter("skipped")]
        told = [reason for reason in reasons if reason.startswith(INCONCLUSIVE)]
        names = [f"{file.name}::{test}: {why}" for file, test, why in _failed(suite)]
        total.add(Counts(int(suite.get("tests", 0)) - failed - skipped, failed, skipped, told, names))
    return total


def failed_files(report: Path) -> tuple[str, ...]:
    """The files below tests/ in which a test failed, as a stage names them."""
    if not report.exists():
        return ()
    found = [str(file.relative_to("tests")) for file, _, _ in _failed(ET.parse(report).getroot())]
    return tuple(dict.fromkeys(found))


def _failed(suite: ET.Element) -> Iterator[tuple[Path, str, str]]:
    """File, test and first line of every failure and error."""
    for case in suite.iter("testcase"):
        why = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if why is not None:
            first = str(why.get("message", "")).strip().partition("\n")[0]
            yield _file(case.get("classname", "")), case.get("name", ""), first[:WORDS]


def _file(classname: str) -> Path:
    """Pytest gives a test's place as `tests.e2e.test_loop_pool`, and its class, if it has one, behind that."""
    parts = classname.split(".")
    while len(parts) > 1 and not parts[-1].startswith("test_"):
        parts.pop()
    return Path(*parts).with_suffix(".py")
