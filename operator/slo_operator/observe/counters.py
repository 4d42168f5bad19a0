"""Exact growth of a scraped counter between two moments."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

#: (timestamp, value) of one series, oldest first
Points = list[tuple[float, float]]


def growth(points: Points, a: float, b: float, tolerance: float) -> float | None:
    """From the scrape nearest to `a` to the one nearest to `b`; None when one is further off than the tolerance, or
    the counter fell in between: it was reset, and what it had counted until then is not known.
    """
    i, j = _nearest(points, a), _nearest(points, b)
    if i is None or j is None or abs(points[i][0] - a) > tolerance or abs(points[j][0] - b) > tolerance:
        return None
    between = points[i : j + 1]
    if any(later < earlier for (_, earlier), (_, later) in pairwise(between)):
        return None
    return between[-1][1] - between[0][1]


def _nearest(points: Points, t: float) -> int | None:
    i = bisect_left(points, (t, -1.0))
    near = [k for k in (i - 1, i) if 0 <= k < len(points)]
    return min(near, key=lambda k: abs(points[k][0] - t), default=None)
