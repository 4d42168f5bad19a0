"""The traffic has the promised mean, bursts and seeds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devcluster.gateway.schedule import (
    ASSISTANT_MIX,
    STEADY,
    Arrival,
    Bursts,
    arrivals_from,
    period,
    schedule,
)

pytestmark = pytest.mark.unit

seeds = st.integers(0, 2**32)


def phase(
    rate: float = 40, seconds: float = 120, seed: int = 1, bursts: Bursts | None = None
) -> tuple[Arrival, ...]:
    return schedule(rate_rps=rate, seconds=seconds, seed=seed, mix=ASSISTANT_MIX, bursts=bursts or Bursts())


def test_rate_outside_the_burst_is_lowered_so_that_the_mean_is_right() -> None:
    # 5 s at 1.6 and 15 s at x must average to 1 over 20 s: x = (20 - 8) / 15
    assert Bursts().base == pytest.approx(0.8)
    assert Bursts().intensity(9.9) == pytest.approx(0.8)
    assert Bursts().intensity(10.0) == 1.6
    assert Bursts().intensity(34.9) == 1.6
    assert Bursts().intensity(35.0) == pytest.approx(0.8)


@given(seed=seeds, rate=st.sampled_from([5.0, 40.0, 80.0]), periods=st.integers(1, 6))
@settings(max_examples=30)
def test_whole_periods_have_the_wanted_rate_exactly(seed: int, rate: float, periods: int) -> None:
    assert len(phase(rate, 20.0 * periods, seed)) == rate * 20 * periods


@given(seed=seeds)
@settings(max_examples=20)
def test_times_are_sorted_and_lie_within_the_phase(seed: int) -> None:
    times = [arrival.at_s for arrival in phase(seconds=50, seed=seed)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 50


def test_the_burst_brings_1_6_times_the_mean_rate() -> None:
    # 600 s at 40/s: 30 bursts of 5 s should hold 1.6 × 40 × 150 = 9,600 of 24,000 requests.
    # Their number is binomial(24,000, 0.4): sigma 76; five of them are 380.
    inside = sum(10 <= arrival.at_s % 20 < 15 for arrival in phase(seconds=600))
    assert abs(inside - 9_600) < 380


def test_seconds_scatter_as_poisson_arrivals_do() -> None:
    # Steady traffic at 20/s: variance of the count per second is close to the mean (index of dispersion 1).
    counts = Counter(int(arrival.at_s) for arrival in phase(20, 2000, bursts=STEADY))
    values = [counts[second] for second in range(2000)]
    variance = sum((value - 20) ** 2 for value in values) / len(values)
    assert 0.8 < variance / 20 < 1.2


def test_the_mix_is_kept() -> None:
    counts = Counter(arrival.model for arrival in phase(seconds=1000))
    # binomial(40,000, p): sigma at most 100
    assert abs(counts["assistant-small"] - 20_000) < 500
    assert abs(counts["assistant-base"] - 12_000) < 500
    assert abs(counts["assistant-large"] - 8_000) < 500


@given(seed=seeds)
@settings(max_examples=10)
def test_one_seed_gives_one_schedule_and_another_a_different_one(seed: int) -> None:
    assert phase(seed=seed) == phase(seed=seed)
    assert phase(seed=seed) != phase(seed=seed + 1)


def test_the_schedule_is_the_same_on_every_machine() -> None:
    first = phase(seed=7)[0]
    assert (round(first.at_s, 4), first.model) == (0.1454, "assistant-small")


def test_a_schedule_joined_later_is_the_rest_of_the_same_schedule() -> None:
    whole = phase(seconds=60, seed=3)
    rest = arrivals_from(33.3, rate_rps=40, seed=3, mix=ASSISTANT_MIX, bursts=Bursts())
    expected = [arrival for arrival in whole if arrival.at_s >= 33.3]
    assert [next(rest) for _ in expected] == expected


def test_no_rate_means_no_request() -> None:
    assert phase(rate=0) == ()


@given(share=st.floats(0, 1, exclude_max=True), start=st.floats(0, 15), factor=st.floats(0, 4))
def test_positions_lie_within_the_period_and_grow_with_the_share(
    share: float, start: float, factor: float
) -> None:
    bursts = Bursts(start_s=start, factor=factor)
    assert 0 <= bursts.position(share / 2) <= bursts.position(share) <= 20.000001


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"factor": 4.1}, "at most 4"),
        ({"burst_s": 20.0}, "between 0 and period_s"),
        ({"start_s": 16.0}, "within one period"),
    ],
)
def test_impossible_bursts_are_refused_with_the_reason(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Bursts(**wrong)


def test_an_empty_mix_and_a_negative_rate_are_refused() -> None:
    with pytest.raises(ValueError, match="positive weight"):
        period(0, rate_rps=1, seed=1, mix={"a": 0.0}, bursts=Bursts())
    with pytest.raises(ValueError, match="0 or more"):
        period(0, rate_rps=-1, seed=1, mix={"a": 1.0}, bursts=Bursts())
