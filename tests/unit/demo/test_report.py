"""The report says what was measured, stands on its own, and survives whatever a run leaves out."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from demo import charts, summary
from demo.goals import figures, results
from demo.live import line, table
from demo.report_html import write_reports
from demo.run_data import Decision, Run, Sample
from demo.series import Pin, p99_over_time, rate_over_time, zero
from tests.unit.demo import synthetic

pytestmark = pytest.mark.unit


def written(run: Run, folder: Path) -> tuple[dict[str, object], str]:
    found = figures(run)
    write_reports(run, found, results(found), "verdict", folder)
    document: dict[str, object] = json.loads((folder / "report.json").read_text())
    return document, (folder / "report.html").read_text()


def test_the_json_has_the_keys_of_the_goals(tmp_path: Path) -> None:
    document, _ = written(synthetic.run(), tmp_path)
    for dotted in figures(synthetic.run()):
        value: object = document
        for part in dotted.split("."):
            assert isinstance(value, dict)
            value = value[part]
        assert value is not None, dotted
    assert document["levers_used"] == ["preprocess_pool", "dynamic_batching"]
    assert document["machine"] == {
        "cores": 2,
        "memory_gib": 23.5,
        "kernel": "6.1.0",
        "probe_p99_ms": {"baseline": 3.1, "tuned": 4.0, "doubled": 6.2},
        "send_p99_ms": {"baseline": 4.0},
    }


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    _, page = written(synthetic.run(), tmp_path)
    assert re.findall(r"(?:src|href|url)\s*[=(]", page) == []
    assert "http" not in page


def test_every_chart_is_well_formed_and_described(tmp_path: Path) -> None:
    _, page = written(synthetic.run(), tmp_path)
    found = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(found) == 3
    for chart in found:
        root = ET.fromstring(chart)
        assert root.get("role") == "img"
        assert len(root.get("aria-label") or "") > 20
        assert "nan" not in chart


def test_messages_of_the_cluster_cannot_break_the_page(tmp_path: Path) -> None:
    nasty = Decision(synthetic.BEGIN + 5, "Waiting", "<script>alert(1)</script> & 5 < 6", lever="<b>")
    _, page = written(replace(synthetic.run(), decisions=(nasty,)), tmp_path)
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; 5 &lt; 6" in page


class Balance(HTMLParser):
    """Open tags, to see that all are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "run",
    [
        synthetic.run(),
        Run("job1", 0, 1, synthetic.run().machine, unfinished="machine too noisy: baseline"),
        replace(synthetic.run(), samples=(), decisions=(), windows={}),
    ],
    ids=["whole", "nothing", "only requests"],
)
def test_the_page_is_whole_whatever_the_run_left_out(run: Run, tmp_path: Path) -> None:
    _, page = written(run, tmp_path)
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_the_terminal_views_say_what_matters() -> None:
    sample = replace(synthetic.run().samples[0], p99_20s_ms=764.0, p99_60s_ms=280.0)
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table("baseline", "0:10 of 1:00", sample, synthetic.decisions()))
    text = console.export_text()
    for words in ("764 ms", "280 ms", "PreprocessStarved", "waiting for preprocessing", "Promoted", "4 GPUs"):
        assert words in text
    assert "p99 764 ms (20 s) 280 ms (60 s)" in line("baseline", sample, [])
    assert "p99 – (20 s)" in line("warm-up", Sample(0, "warm-up"), [])


def test_the_summary_names_the_missed_goal() -> None:
    run = replace(synthetic.run(), mig_actions=2)
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    summary.show(console, run, figures(run), results(figures(run)), "missed: mig_actions = 2")
    text = console.export_text()
    assert text.count("MISSED") == 1
    assert "missed: mig_actions = 2" in text


def test_ticks_are_round_numbers() -> None:
    assert charts.Axis(0, 800, 100, 0).ticks(5) == [0, 200, 400, 600, 800]
    assert charts.Axis(0, 0.9, 100, 0).ticks(5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_pins_that_are_close_stand_in_rows() -> None:
    x = charts.Axis(0, 100, 0, 100)
    pins = [Pin(at, "1", "") for at in (0, 10, 15, 40, 45)]
    assert charts.pin_rows(pins, x) == [0, 1, 2, 0, 1]


def test_the_rate_over_time_is_what_was_sent() -> None:
    records = synthetic.run().records
    points = rate_over_time(records, zero(synthetic.run()))
    assert sum(rate * 2.5 for _, rate in points) == pytest.approx(len(records), rel=0.01)


def test_p99_over_time_looks_back_20_s_and_needs_50_requests() -> None:
    run = synthetic.run()
    points = dict(p99_over_time(run.records, synthetic.BEGIN))
    assert min(points) == 20
    assert p99_over_time(run.records[:49], synthetic.BEGIN) == []
