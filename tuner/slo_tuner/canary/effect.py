"""The effect of a change on a figure that every block has, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slo_tuner.stats import mean, t_quantile, variance

#: blocks before the change from which on they lend their spread, and from which on their mean is known well enough
ENOUGH_FOR_SPREAD = 3
ENOUGH_FOR_MEAN = 6
#: blocks from which on the load may explain a part of the differences
ENOUGH_FOR_LINE = 6
#: from this level on (one-sided) a difference before the change is one of the pods, not of chance
UNLIKE_BEFORE = 0.05
#: no spread is smaller: equal figures in a row are luck, not certainty
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean, standard error and degrees of freedom of a difference."""

    mean: float
    error: float
    dof: float

    def upper(self, alpha: float) -> float:
        return self.mean + t_quantile(1.0 - alpha, self.dof) * self.error

    def lower(self, alpha: float) -> float:
        return self.mean - t_quantile(1.0 - alpha, self.dof) * self.error


@dataclass(frozen=True, slots=True)
class Point:
    """One block's figure, and the requests that all pods together answered in it."""

    figure: float
    load: float


def paired(after: Sequence[Point], before: Sequence[Point]) -> Effect | None:
    """Effect on a difference between canary and peers, one figure per block; None with fewer than three.

    Blocks from before the change tell how the difference spreads and what it is without the change. For an
    unchanged setting both stretches are samples of one distribution, so unless the stretch before is much the
    shorter one their spread is pooled (a t-test with n + m − 2 degrees of freedom). Where the pods differed
    already, that difference is taken out: a slower node is not the setting's fault. Where they did not, taking
    out its estimate would only add its error.

    A gain is larger in a burst than between two, which is no noise: what a block's load explains of the
    difference does not count as spread (analysis of covariance; the load is both pods' together, so that the
    change does not move it).
    """
    n, m = len(after), len(before)
    if n < 3:
        return None
    found = mean([p.figure for p in after])
    own, own_dof = _spread(after)
    if m < ENOUGH_FOR_SPREAD:
        return Effect(found, math.sqrt(own / n), own_dof)
    old, old_dof = _spread(before)
    both = own_dof + old_dof
    spread, dof = ((own_dof * own + old_dof * old) / both, both) if n <= 2 * m else (own, own_dof)
    usual = mean([p.figure for p in before])
    if m >= ENOUGH_FOR_MEAN and abs(usual) > t_quantile(1.0 - UNLIKE_BEFORE, old_dof) * math.sqrt(old / m):
        return Effect(found - usual, math.sqrt(spread * (1.0 / n + 1.0 / m)), dof)
    return Effect(found, math.sqrt(spread / n), dof)


def _spread(points: Sequence[Point]) -> tuple[float, int]:
    """Variance around the mean, or around the line over the load where there are enough points for one; and its
    degrees of freedom."""
    n = len(points)
    figures = [p.figure for p in points]
    plain = max(variance(figures), LEAST_VARIANCE)
    middle, centre = mean([p.load for p in points]), mean(figures)
    width = math.fsum((p.load - middle) ** 2 for p in points)
    if n < ENOUGH_FOR_LINE or width <= 0.0:
        return plain, n - 1
    slope = math.fsum((p.load - middle) * (p.figure - centre) for p in points) / width
    rest = math.fsum((p.figure - centre - slope * (p.load - middle)) ** 2 for p in points)
    return max(rest / (n - 2), LEAST_VARIANCE), n - 2


def shift(after: Sequence[float], before: Sequence[float]) -> Effect | None:
    """Effect on a level, after against before (Welch: their spreads differ); None with fewer than three each."""
    n, m = len(after), len(before)
    if n < 3 or m < 3:
        return None
    own, old = max(variance(after), LEAST_VARIANCE) / n, max(variance(before), LEAST_VARIANCE) / m
    dof = (own + old) ** 2 / (own**2 / (n - 1) + old**2 / (m - 1))
    return Effect(mean(after) - mean(before), math.sqrt(own + old), max(1.0, dof))
