"""The distributions, against tabulated values."""

from __future__ import annotations

import pytest

from slo_tuner.stats import beta_cdf, beta_quantile, quantile, share_interval, t_quantile


@pytest.mark.parametrize(
    ("p", "dof", "expected"),
    [
        (0.975, 3, 3.18245),
        (0.95, 7, 1.89458),
        (0.99, 15, 2.60248),
        (0.995, 30, 2.74999),
        (0.025, 3, -3.18245),
    ],
)
def test_students_t_quantiles_are_those_of_the_tables(p: float, dof: float, expected: float) -> None:
    assert t_quantile(p, dof) == pytest.approx(expected, abs=1e-4)


def test_beta_of_whole_numbers_is_a_binomial_sum() -> None:
    # P(Beta(2, 3) ≤ 0.4) = P(Bin(4, 0.4) ≥ 2) = 1 − 0.6⁴ − 4·0.4·0.6³ = 0.5248
    assert beta_cdf(0.4, 2.0, 3.0) == pytest.approx(0.5248, abs=1e-10)


def test_beta_quantile_inverts_the_distribution() -> None:
    for p in (0.025, 0.5, 0.975):
        assert beta_cdf(beta_quantile(p, 990.5, 10.5), 990.5, 10.5) == pytest.approx(p, abs=1e-9)


def test_jeffreys_interval_of_no_misses_in_a_hundred() -> None:
    # 100 of 100: the lower end is the 2.5 % point of Beta(100.5, 0.5), 0.9753
    low, high = share_interval(100.0, 100.0)
    assert low == pytest.approx(0.9753, abs=2e-4)
    assert high > 0.9999


def test_empirical_quantile_is_a_measured_value() -> None:
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([5.0], 0.5) == 5.0
