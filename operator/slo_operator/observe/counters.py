"""Scraped samples of a counter: kept for a while, and its exact growth between two moments."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

_T = TypeVar("_T")

#: (timestamp, value) of one series, oldest first
Points = list[tuple[float, float]]


def take_in(points: Points, samples: Iterable[tuple[float, float]]) -> None:
    """Append the finite samples that are newer than what is there."""
    newest = points[-1][0] if points else -math.inf
    points.extend(p for p in samples if p[0] > newest and math.isfinite(p[1]))


def drop_before(points: Points, moment: float) -> None:
    """Forget what is older."""
    del points[: bisect_left(points, (moment, -math.inf))]


def growth(points: Points, a: float, b: float, tolerance: float) -> float | None:
    """From the scrape nearest to `a` to the one nearest to `b`; None when one is further off than the tolerance, or
    the counter fell in between: it was reset, and what it had counted until then is not known.
    """
    if not points:
        return None
    i, j = nearest(points, a, _time), nearest(points, b, _time)
    if abs(points[i][0] - a) > tolerance or abs(points[j][0] - b) > tolerance:
        return None
    between = points[i : j + 1]
    if any(later < earlier for (_, earlier), (_, later) in pairwise(between)):
        return None
    return between[-1][1] - between[0][1]


def nearest(items: Sequence[_T], moment: float, time: Callable[[_T], float]) -> int:
    """Index of the item nearest to a moment, the earlier one of two; there must be one."""
    i = bisect_left(items, moment, key=time)
    near = [k for k in (i - 1, i) if 0 <= k < len(items)]
    return min(near, key=lambda k: abs(time(items[k]) - moment))


def _time(sample: tuple[float, float]) -> float:
    return sample[0]
