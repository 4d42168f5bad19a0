"""A metrics page: Prometheus' text format, read so that one odd line costs that line and nothing else.

Source: Prometheus' exposition formats, text-based format 0.0.4. Comments, types and help are passed over: what a family
means is known by its name. Pages of servers in trouble are cut off, doubled or mixed with log lines; the reader says so
and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

#: name{labels} value [timestamp in ms]
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+([^\s{}]+)(?:\s+-?\d+)?\s*$")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE: Final = re.compile(r'\\[\\"n]')

#: family and sorted labels
Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Page:
    """`samples` of the families that were asked for. `odd` are lines that are none (number and text, the first few, of
    `odd_lines`); `doubled` are series that stand there more than once: the largest value counts. `cut_off` is a last
    line that does not end, "" where all do."""

    samples: dict[Series, float] = field(default_factory=dict)
    odd: list[tuple[int, str]] = field(default_factory=list)
    odd_lines: int = 0
    doubled: set[Series] = field(default_factory=set)
    lines: int = 0
    cut_off: str = ""


KEPT_ODD_LINES: Final = 5


def read(lines: Iterable[str], wanted: Callable[[str], bool]) -> Page:
    """The page's samples of families that `wanted` wants. Never raises for what the page says."""
    page = Page()
    ended = False
    for number, line in enumerate(lines, 1):
        page.lines = number
        text = line.strip()
        ended = ended or line.endswith("\n")
        if ended and not line.endswith("\n"):
            # Only the last line can lack its end. What is left of its number is another number.
            page.cut_off = text[:120]
            break
        if not text or text.startswith("#"):
            continue
        name, labels, value = _sample(text)
        if value is None:
            page.odd_lines += 1
            if len(page.odd) < KEPT_ODD_LINES:
                page.odd.append((number, text[:120]))
        elif wanted(name):
            series = (name, tuple(sorted(labels.items())))
            if series in page.samples:
                page.doubled.add(series)
                value = max(value, page.samples[series])
            page.samples[series] = value
    return page


def _sample(text: str) -> tuple[str, Mapping[str, str], float | None]:
    """Family, labels and value; the value is None where the line is no sample."""
    found = _LINE.match(text)
    if found is None:
        return "", {}, None
    name, inner, number = found.groups()
    labels = _labels(inner or "")
    try:
        return (name, labels, float(number)) if labels is not None else (name, {}, None)
    except ValueError:
        return name, {}, None


def _labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None if text[at:].strip() else found
        value = match[2]
        found[match[1]] = _ESCAPE.sub(lambda m: _ESCAPES[m[0]], value) if "\\" in value else value
        at = match.end()
    return found
