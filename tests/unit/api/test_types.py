"""Durations and percentages: what people may write, and the number that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_operator.api.types import Duration, Percentage, PositiveDuration, format_latency, format_share


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [("300ms", 300_000), ("1s", 1_000_000), ("1.5s", 1_500_000), ("1m30s", 90_000_000), ("250us", 250), ("2h", 7_200_000_000)],
)  # fmt: skip
def test_a_duration_is_its_text_and_its_number(text: str, microseconds: int) -> None:
    duration = Duration(text)
    assert duration == text
    assert duration.microseconds == microseconds
    assert duration.seconds == microseconds / 1_000_000


@pytest.mark.parametrize(
    "text", ["300", "", "ms", "-1s", "1 s", "1d", "1ns", "1.s", "1s ", "1s\n", "9" * 20 + "s"]
)
def test_what_is_no_duration_is_told_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="a duration with a unit, such as 300ms"):
        Duration(text)


def test_zero_is_a_duration_but_no_target() -> None:
    assert Duration("0s").seconds == 0
    with pytest.raises(ValueError, match="a duration above zero, such as 300ms"):
        PositiveDuration("0ms")


@given(st.integers(min_value=0, max_value=10**12))
def test_seconds_come_back_from_the_text_that_says_them(microseconds: int) -> None:
    assert Duration.of_seconds(microseconds / 1_000_000).microseconds == microseconds


def test_the_shortest_unit_is_chosen() -> None:
    texts = [Duration.of_seconds(s) for s in (0, 0.3, 1, 1.5, 90, 120, 7200, 0.000_25)]
    assert texts == ["0s", "300ms", "1s", "1500ms", "90s", "2m", "2h", "250us"]


@pytest.mark.parametrize(
    ("text", "share"), [("99.9%", 0.999), ("0%", 0.0), ("100%", 1.0), ("0.5%", 0.005), ("100.0%", 1.0)]
)
def test_a_percentage_is_a_share_of_a_hundred(text: str, share: float) -> None:
    assert Percentage(text).share == share


@pytest.mark.parametrize("text", ["100.1%", "99.9", "-1%", "101%", "%", "1e1%", "99.9%\n"])
def test_what_is_no_percentage_is_told_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="a percentage from 0% to 100%"):
        Percentage(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.262, "262ms"), (0.0041, "4.1ms"), (0.012, "12ms"), (1.7321, "1.73s"), (0.9996, "1s"), (0.0, "0ms"), (2000.0, "2000s"), (0.00996, "10ms")],
)  # fmt: skip
def test_measured_times_are_short(seconds: float, text: str) -> None:
    assert format_latency(seconds) == text


def test_shares_have_two_digits() -> None:
    assert format_share(0.99214) == "99.21%"
