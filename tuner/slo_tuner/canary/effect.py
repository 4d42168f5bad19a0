"""The effect of a change on a figure that every block has, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slo_tuner.stats import mean, t_quantile, variance

#: blocks before the change from which on they lend their spread, and from which on their mean is known well enough
ENOUGH_FOR_SPREAD = 3
ENOUGH_FOR_MEAN = 6
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


def paired(after: Sequence[float], before: Sequence[float]) -> Effect | None:
    """Effect on a difference between canary and peers, one figure per block; None with fewer than three.

    Blocks from before the change tell how the difference spreads and what it is without the change. For an
    unchanged setting both stretches are samples of one distribution, so unless the stretch before is much the shorter one
    their spread is pooled (a t-test with n + m − 2 degrees of freedom). Where the pods differed already, that
    difference is taken out: a slower node is not the setting's fault. Where they did not, taking out its
    estimate would only add its error.
    """
    n, m = len(after), len(before)
    if n < 3:
        return None
    own = max(variance(after), LEAST_VARIANCE)
    if m < ENOUGH_FOR_SPREAD:
        return Effect(mean(after), math.sqrt(own / n), n - 1)
    old = max(variance(before), LEAST_VARIANCE)
    spread, dof = (((n - 1) * own + (m - 1) * old) / (n + m - 2), n + m - 2) if n <= 2 * m else (own, n - 1)
    if m >= ENOUGH_FOR_MEAN and abs(mean(before)) > t_quantile(1.0 - UNLIKE_BEFORE, m - 1) * math.sqrt(
        old / m
    ):
        return Effect(mean(after) - mean(before), math.sqrt(spread * (1.0 / n + 1.0 / m)), dof)
    return Effect(mean(after), math.sqrt(spread / n), dof)


def shift(after: Sequence[float], before: Sequence[float]) -> Effect | None:
    """Effect on a level, after against before (Welch: their spreads differ); None with fewer than three each."""
    n, m = len(after), len(before)
    if n < 3 or m < 3:
        return None
    own, old = max(variance(after), LEAST_VARIANCE) / n, max(variance(before), LEAST_VARIANCE) / m
    dof = (own + old) ** 2 / (own**2 / (n - 1) + old**2 / (m - 1))
    return Effect(mean(after) - mean(before), math.sqrt(own + old), max(1.0, dof))
