"""Requests by size, and members that only long ones go to."""

from __future__ import annotations

import pytest

from slo_operator.remote.lanes import LongLane, size_class

MEMBERS = ["10.0.0.9", "10.0.0.1", "10.0.0.5"]


@pytest.mark.parametrize(
    ("size", "below"),
    [(0, "512"), (511, "512"), (512, "1024"), (1023, "1024"), (1024, "2048"), (2**20 - 1, "1048576")],
)
def test_a_class_is_named_after_the_power_of_two_that_it_stays_below(size: int, below: str) -> None:
    assert size_class(size) == below


def test_whatever_is_larger_than_the_largest_class_is_in_one() -> None:
    assert {size_class(2**20), size_class(10**9)} == {"+Inf"}


def test_lanes_share_no_member_and_leave_none_out_whatever_the_order_in_which_they_are_found() -> None:
    lane = LongLane(4096, 1)
    for found in (MEMBERS, MEMBERS[::-1]):
        assert lane.of(found, 4095) == {"10.0.0.1", "10.0.0.5"}
        assert lane.of(found, 4096) == {"10.0.0.9"}


@pytest.mark.parametrize("size", [1, 9999])
def test_too_few_members_for_two_lanes_are_for_all(size: int) -> None:
    assert LongLane(4096, 2).of(MEMBERS[:2], size) == set(MEMBERS[:2])
    assert LongLane(4096, 1).of([], size) == set()
