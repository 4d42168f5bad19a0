"""Charts as inline SVG: one time axis, panels below each other, colours by CSS class. Pure text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from demo.series import Band, Pin, Points

WIDTH, LEFT, RIGHT = 1080.0, 66.0, 14.0
PIN_ROW, BAND_STRIP = 20.0, 22.0


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear scale from [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Round values within the axis, about so many: steps of 1, 2 or 5 times a power of ten."""
        raw = (self.high - self.low) / about
        if raw <= 0:
            return [self.low]
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        first = math.ceil(self.low / step) * step
        return [first + step * number for number in range(int((self.high - first) / step + 1e-9) + 1)]


def time_axis(seconds: float) -> Axis:
    return Axis(0.0, max(seconds, 1.0), LEFT, WIDTH - RIGHT)


def svg(name: str, description: str, height: float, body: Sequence[str]) -> str:
    """A chart with a name and a description for those who cannot see it."""
    return (
        '<div class="scroll">'
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(name)}. '
        f'{escape(description)}">{"".join(body)}</svg></div>'
    )


def grid(y: Axis, about: int, unit: str) -> str:
    """Horizontal lines with their values; the unit stands at the highest."""
    found = []
    ticks = y.ticks(about)
    for value in ticks:
        at = y(value)
        label = f"{value:,.0f}" + (f" {unit}" if value == ticks[-1] else "")
        found.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{at:.1f}" y2="{at:.1f}"/>')
        found.append(f'<text class="tick" x="{LEFT - 8:g}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    return "".join(found)


def minutes(x: Axis, y: float) -> str:
    """The time axis' labels, in minutes, below `y`."""
    step = 60.0 if x.high <= 900 else 120.0
    labels = []
    for number in range(int(x.high // step) + 1):
        at = number * step
        text = f"{at / 60:.0f} min" if number == 0 else f"{at / 60:.0f}"
        labels.append(
            f'<text class="tick" x="{x(at):.1f}" y="{y + 18:.1f}" text-anchor="middle">{text}</text>'
        )
    return "".join(labels)


def band_shapes(found: Sequence[Band], x: Axis, top: float, bottom: float) -> str:
    """Shaded windows, with their names in a strip of BAND_STRIP px above `top`."""
    shapes = []
    for band in found:
        left, right = x(band.start), x(band.end)
        shapes.append(
            f'<rect class="band" x="{left:.1f}" y="{top - BAND_STRIP:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top + BAND_STRIP:.1f}" rx="3"/>'
            f'<text class="band-name" x="{(left + right) / 2:.1f}" y="{top - 7:.1f}" text-anchor="middle">'
            f"{escape(band.name)}</text>"
        )
    return "".join(shapes)


def polyline(points: Points, x: Axis, y: Axis, css: str) -> str:
    """A line through the points; it stops where more than 20 s are missing."""
    return f'<path class="line {css}" d="{_path(points, x, y)}"/>'


def area(points: Points, x: Axis, y: Axis, css: str) -> str:
    """The area between the points and 0."""
    return stacked({css: points}, x, y)


def stacked(layers: Mapping[str, Points], x: Axis, y: Axis) -> str:
    """Layers on top of each other, by CSS class; all have the same times."""
    shapes, below = [], [0.0] * max((len(points) for points in layers.values()), default=0)
    for css, points in layers.items():
        if not points:
            continue
        above = [low + value for low, (_, value) in zip(below, points, strict=True)]
        up = [f"{x(at):.1f},{y(high):.1f}" for (at, _), high in zip(points, above, strict=True)]
        down = [f"{x(at):.1f},{y(low):.1f}" for (at, _), low in zip(points, below, strict=True)]
        shapes.append(f'<polygon class="area {css}" points="{" ".join(up + down[::-1])}"/>')
        below = above
    return "".join(shapes)


def level(value: float, y: Axis, label: str) -> str:
    """A dashed line at a value, such as the SLO."""
    at = y(value)
    return (
        f'<line class="slo" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="slo-name" x="{LEFT + 4:g}" y="{at - 6:.1f}">{escape(label)}</text>'
    )


def marks(points: Points, x: Axis, y: Axis, css: str) -> str:
    """Crosses, such as failed requests; those above the axis stand at its top."""
    return "".join(
        f'<text class="{css}" x="{x(at):.1f}" y="{y(min(value, y.high)) + 4:.1f}" text-anchor="middle">×</text>'
        for at, value in points
    )


def moment(at: float, x: Axis, top: float, bottom: float, label: str) -> str:
    """A vertical line with a word, such as the switch to Auto."""
    where = x(at)
    return (
        f'<line class="moment" x1="{where:.1f}" x2="{where:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        f'<text class="moment-name" x="{where + 5:.1f}" y="{bottom - 8:.1f}">{escape(label)}</text>'
    )


def pin_rows(found: Sequence[Pin], x: Axis) -> list[int]:
    """The row of each pin, so that none covers another: the first row in which the last pin is 20 px away."""
    ends: list[float] = []
    rows = []
    for pin in found:
        row = next((number for number, end in enumerate(ends) if x(pin.at) - end >= PIN_ROW), len(ends))
        ends[row : row + 1] = [x(pin.at)]
        rows.append(row)
    return rows


def pin_shapes(found: Sequence[Pin], x: Axis, top: float, bottom: float) -> str:
    """Numbered pins above `top`, each with a line down to `bottom` and its words on hover."""
    shapes = []
    for pin, row in zip(found, pin_rows(found, x), strict=True):
        where, height = x(pin.at), top - BAND_STRIP - 13 - row * PIN_ROW
        shapes.append(
            f'<g class="pin"><title>{escape(pin.says)}</title>'
            f'<line x1="{where:.1f}" x2="{where:.1f}" y1="{height:.1f}" y2="{bottom:.1f}"/>'
            f'<circle cx="{where:.1f}" cy="{height:.1f}" r="9"/>'
            f'<text x="{where:.1f}" y="{height + 4:.1f}" text-anchor="middle">{escape(pin.label)}</text></g>'
        )
    return "".join(shapes)


def legend(entries: Mapping[str, str]) -> str:
    """Colour keys: CSS class → words."""
    keys = "".join(
        f'<li><span class="key {css}"></span>{escape(words)}</li>' for css, words in entries.items()
    )
    return f'<ul class="legend">{keys}</ul>'


def nice_top(values: Sequence[float], least: float) -> float:
    """A round upper end for an axis that has to show the values."""
    top = max([*values, least])
    step = 0.2 * 10.0 ** math.floor(math.log10(top))
    return math.ceil(top / step) * step


def _path(points: Points, x: Axis, y: Axis) -> str:
    parts, before = [], -math.inf
    for at, value in points:
        command = "L" if at - before <= 20 else "M"
        parts.append(f"{command}{x(at):.1f} {y(min(value, y.high)):.1f}")
        before = at
    return "".join(parts)
