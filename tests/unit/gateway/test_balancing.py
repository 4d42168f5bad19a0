"""Least outstanding, ties in turn, vanished pods drained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.gateway.balancing import LeastOutstanding

pytestmark = pytest.mark.unit


def balancer(*endpoints: str) -> LeastOutstanding:
    made = LeastOutstanding()
    made.update(endpoints)
    return made


def test_idle_pods_get_requests_in_turn() -> None:
    pods = balancer("a", "b", "c")
    order = []
    for _ in range(6):
        chosen = pods.acquire()
        assert chosen is not None
        order.append(chosen)
        pods.release(chosen)
    assert order == ["a", "b", "c", "a", "b", "c"]


def test_the_pod_with_the_fewest_outstanding_is_chosen() -> None:
    pods = balancer("a", "b")
    assert [pods.acquire() for _ in range(4)] == ["a", "b", "a", "b"]
    pods.release("b")
    pods.release("b")
    assert [pods.acquire(), pods.acquire()] == ["b", "b"]


def test_a_pod_that_vanished_gets_nothing_new_and_is_forgotten_when_done() -> None:
    pods = balancer("a", "b")
    assert pods.acquire() == "a"
    pods.update(["b"])
    assert [pods.acquire(), pods.acquire()] == ["b", "b"]
    assert pods.outstanding() == {"a": 1, "b": 2}
    pods.release("a")
    assert pods.outstanding() == {"b": 2}


def test_a_pod_that_returns_keeps_its_count() -> None:
    pods = balancer("a", "b")
    pods.acquire()
    pods.update(["b"])
    pods.update(["a", "b"])
    assert pods.outstanding()["a"] == 1
    assert pods.acquire() == "b"


def test_pods_that_refused_are_avoided() -> None:
    pods = balancer("a", "b")
    assert pods.acquire(avoid={"a"}) == "b"
    assert pods.acquire(avoid={"a", "b"}) is None


def test_without_pods_there_is_nothing_to_choose() -> None:
    assert LeastOutstanding().acquire() is None


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=200))
def test_counts_never_differ_by_more_than_the_answers_explain(steps: list[tuple[bool, int]]) -> None:
    pods, flying = balancer("a", "b", "c", "d"), []
    for send, which in steps:
        if send:
            before = pods.outstanding()
            chosen = pods.acquire()
            assert chosen is not None
            assert before[chosen] == min(before.values())
            flying.append(chosen)
        elif flying:
            pods.release(flying.pop(which % len(flying)))
    assert sum(pods.outstanding().values()) == len(flying)
