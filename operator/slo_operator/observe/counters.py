"""Scraped samples of a counter: kept for a while, and its growth between two moments."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise

#: (timestamp, value) of one series, oldest first
Points = list[tuple[float, float]]

#: scrapes further apart than this many times a stretch tell nothing of it
LONGEST_GAP = 1.5


def take_in(points: Points, samples: Iterable[tuple[float, float]]) -> None:
    """Append the finite samples that are newer than what is there."""
    newest = points[-1][0] if points else -math.inf
    points.extend(p for p in samples if p[0] > newest and math.isfinite(p[1]))


def drop_before(points: Points, moment: float) -> None:
    """Forget what is older."""
    del points[: bisect_left(points, (moment, -math.inf))]


def growth(points: Points, a: float, b: float) -> float | None:
    """What a counter grew by from `a` to `b`, evenly between the two scrapes around each of them.

    Every target is scraped at a phase of its own: without this, a burst would fall into one block on one pod and into
    the next block on its neighbour. None when there is no scrape on either side of `a` or `b`, two are too far apart,
    or the counter fell: it was reset, and what it had counted until then is not known.
    """
    first, last = bisect_right(points, a, key=_time) - 1, bisect_left(points, b, key=_time)
    if first < 0 or last == len(points):
        return None
    for (t, value), (later, then) in pairwise(points[first : last + 1]):
        if then < value or later - t > LONGEST_GAP * (b - a):
            return None
    return _between(points[last - 1], points[last], b) - _between(points[first], points[first + 1], a)


def _between(one: tuple[float, float], next_one: tuple[float, float], moment: float) -> float:
    (t, value), (later, then) = one, next_one
    return value + (then - value) * (moment - t) / (later - t)


def _time(sample: tuple[float, float]) -> float:
    return sample[0]
