from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_operator.cli.words import age, bar, clock, seconds_of, share_of

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("share", "width", "drawn"),
    [
        (1.0, 4, "████"),
        (0.5, 4, "██"),
        (0.25, 2, "▌"),
        (0.6, 40, "█" * 24),
        (0.0, 10, ""),
        (0.0001, 10, "▏"),  # present, however small
        (1.7, 3, "███"),  # a share above one is a measuring error, not a longer line
        (-0.1, 3, ""),
    ],
)
def test_a_bar_is_as_long_as_its_share(share: float, width: int, drawn: str) -> None:
    assert bar(share, width) == drawn


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 80))
def test_a_larger_share_never_gets_the_shorter_bar(one: float, other: float, width: int) -> None:
    small, large = sorted((one, other))
    assert len(bar(small, width)) <= len(bar(large, width)) <= width


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (200, "3m20s"),
        (600, "10m"),
        (7200, "120m"),
        (10_800, "3h"),
        (259_200, "3d"),
    ],
)
def test_ages_get_coarser_with_time(seconds: int, written: str) -> None:
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(then, NOW) == written


def test_a_clock_that_is_ahead_shows_no_negative_age() -> None:
    assert age("2026-11-30T12:00:05Z", NOW) == "0s"


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert age("soon", NOW) == "?"
    assert clock("soon", NOW) == "soon"


def test_the_date_is_shown_once_it_is_another() -> None:
    assert clock("2026-11-30T09:08:07Z", NOW) == "09:08:07"
    assert clock("2026-11-29T23:59:59Z", NOW) == "2026-11-29 23:59:59"


@pytest.mark.parametrize(("text", "ms"), [("1.5ms", 1.5), ("262ms", 262), ("1.73s", 1730), ("1s", 1000)])
def test_a_time_of_the_status_is_read_with_any_unit(text: str, ms: float) -> None:
    assert 1000 * (seconds_of(text) or 0.0) == pytest.approx(ms)


def test_texts_of_the_status_become_numbers_again() -> None:
    assert share_of("68.25%") == pytest.approx(0.6825)
    assert share_of(None) is None
    assert share_of("unknown") is None
    assert seconds_of("262ms") == pytest.approx(0.262)
    assert seconds_of("1.73s") == pytest.approx(1.73)
    assert seconds_of("–") is None
