from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.queries import tick


def test_a_tick_sends_the_same_number_of_queries_for_one_namespace_and_for_many() -> None:
    one, many = tick(1), tick(100)
    assert len(one) == len(many) > 10
    assert all("team-099" in query for query in many if "team-" in query)


def test_figures_are_written_for_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.json"
    assert main(["queries", "--output", str(output)]) == 0
    written = json.loads(output.read_text())
    assert {figure["subject"] for figure in written["figures"]} == {"queries"}
    assert "per tick with 300 namespaces" in capsys.readouterr().out


def test_an_unknown_subject_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert "decisions, queries, diagnosis, load-generator" in capsys.readouterr().err
