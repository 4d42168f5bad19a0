"""The few distributions that verdicts need, without a numerical library.

Regularised incomplete beta by Lentz's continued fraction (Numerical Recipes, 3rd ed., 6.4); quantiles
by bisection, which is slow and cannot fail. Accuracy 1e-9, far beyond what a verdict needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

_TINY = 1e-300


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X ≤ x) for X ~ Beta(a, b), a and b > 0."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(x, a, b) / a
    return 1.0 - front * _beta_fraction(1.0 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            result *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return result


@lru_cache(maxsize=4096)
def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with P(X ≤ x) = p for X ~ Beta(a, b)."""
    return _bisect(lambda x: beta_cdf(x, a, b), p, 0.0, 1.0)


def t_cdf(t: float, dof: float) -> float:
    """P(T ≤ t) of Student's t with `dof` degrees of freedom."""
    tail = 0.5 * beta_cdf(dof / (dof + t * t), dof / 2.0, 0.5)
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, dof: float) -> float:
    """The t with P(T ≤ t) = p; p within (0, 1), dof > 0."""
    if p == 0.5:
        return 0.0
    high = 2.0
    while t_cdf(high, dof) < max(p, 1.0 - p):
        high *= 2.0
    return _bisect(lambda x: t_cdf(x, dof), p, -high, high)


def _bisect(cdf: Callable[[float], float], p: float, low: float, high: float) -> float:
    for _ in range(80):
        middle = 0.5 * (low + high)
        if cdf(middle) < p:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Sample variance (n − 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1)


def share_interval(within: float, total: float, confidence: float = 0.95) -> tuple[float, float]:
    """Jeffreys interval of a share: Beta(½ + within, ½ + total − within)."""
    tail = (1.0 - confidence) / 2.0
    a, b = _posterior(within, total)
    return beta_quantile(tail, a, b), beta_quantile(1.0 - tail, a, b)


def chance_below(level: float, within: float, total: float) -> float:
    """Probability that the true share is below `level`, by the same posterior."""
    return beta_cdf(level, *_posterior(within, total))


def _posterior(within: float, total: float) -> tuple[float, float]:
    """Jeffreys' Beta for a share. The difference comes first, or ½ is lost in the rounding of a large total."""
    return 0.5 + max(0.0, within), 0.5 + max(0.0, total - within)


def quantile(values: Iterable[float], q: float) -> float:
    """Empirical quantile: the smallest value that at least a share q does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]
