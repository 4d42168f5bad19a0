"""Cut the chart of latency and traffic out of the demo's report, as a picture of its own for the README.

python scripts/picture_of_report.py build/demo/report.html docs/images/demo.svg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

#: rules for what the chart consists of; the rest of the page's style is about text around it
_CHART_RULES = re.compile(
    r"^\.(?:grid|tick|band|line|area|slo|failure|moment|pin)[^{]*\{[^}]*\}$", re.MULTILINE
)
_COLOURS = re.compile(r":root \{[^}]*\}|@media \(prefers-color-scheme: dark\) \{\s*:root \{[^}]*\}\s*\}")


def picture(report: str) -> str:
    """The first chart of a report as a stand-alone SVG. Raises ValueError when there is none."""
    chart = re.search(r'<svg class="chart" viewBox="0 0 (\d+) (\d+)"(.*?)</svg>', report, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", report, re.DOTALL)
    if chart is None or style is None:
        raise ValueError("no chart in it: is this the report.html of a demo run?")
    width, height, rest = chart.groups()
    rules = [*_COLOURS.findall(style[1]), *_CHART_RULES.findall(style[1])]
    font = 'text { font-family: system-ui, "DejaVu Sans", sans-serif; }'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"{rest[: rest.index(">") + 1]}'
        f"<style>{chr(10).join([*rules, font])}</style>"
        f'<rect width="{width}" height="{height}" fill="var(--page)"/>'
        f"{rest[rest.index('>') + 1 :]}</svg>\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: picture_of_report.py build/demo/report.html docs/images/demo.svg")
    Path(sys.argv[2]).write_text(picture(Path(sys.argv[1]).read_text(encoding="utf-8")), encoding="utf-8")
