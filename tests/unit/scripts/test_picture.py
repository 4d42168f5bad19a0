"""The README's picture is the report's own chart, and stands alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from demo.goals import figures, results
from demo.report_html import write_reports
from scripts.picture_of_report import picture
from tests.unit.demo import synthetic

SVG = "{http://www.w3.org/2000/svg}"


def test_the_first_chart_becomes_a_well_formed_picture_with_its_colours(tmp_path: Path) -> None:
    run, found = synthetic.run(), figures(synthetic.run())
    write_reports(run, found, results(found), "verdict", tmp_path)
    root = ET.fromstring(picture((tmp_path / "report.html").read_text(encoding="utf-8")))
    assert root.tag == f"{SVG}svg"
    assert any("300 ms" in (text.text or "") for text in root.iter(f"{SVG}text"))
    style = root.findtext(f"{SVG}style") or ""
    used = {c for element in root.iter() for c in element.get("class", "").split() if c not in ("chart", "")}
    assert {name for name in used if f".{name}" not in style} == set()


def test_a_page_without_a_chart_is_refused() -> None:
    with pytest.raises(ValueError, match=r"report\.html of a demo run"):
        picture("<html></html>")
