"""One request to the pool, whatever its members do: a result within the deadline, or a clear no."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from slo_operator.remote.board import Board
from slo_operator.remote.lanes import LongLane
from slo_operator.remote.pool import Pool, PoolUnavailable
from slo_operator.remote.tensors import Tensor, encode
from tests.unit.remote.members import (
    Behaviour,
    Member,
    close_afterwards,
    echo,
    garbage,
    hang_up,
    refuse,
    slow,
)

BODY = encode([Tensor("X", "INT32", np.array([[1, 2]], dtype="<i4"))], ["X"])
Start = Callable[..., list[Member]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Member] = []

    def begin(*behaviours: Behaviour) -> list[Member]:
        for number, behaviour in enumerate(behaviours, 1):
            port = running[0].port if running else 0
            running.append(Member(f"127.0.1.{number}", behaviour, port))
        return running

    yield begin
    for member in running:
        member.close()


@pytest.fixture
def pool(start: Start, tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def of(members: list[Member], timeout_s: float = 5.0, extra: tuple[str, ...] = ()) -> Pool:
        addresses = [m.address for m in members] + list(extra)
        found = Pool("stage", members[0].port, lambda: addresses, Board(tmp_path / "board"), timeout_s)
        made.append(found)
        return found

    yield of
    for one in made:
        one.close()


def result(pool: Pool) -> list[int]:
    (tensor,) = pool.infer(BODY).tensors
    return [int(x) for x in tensor.array.ravel()]


def test_a_connection_is_kept_open(start: Start, pool: Callable[..., Pool]) -> None:
    (member,) = start(echo)
    client = pool([member])
    for _ in range(5):
        assert result(client) == [1, 2]
    assert (member.seen, member.connections) == (5, 1)


def test_equals_take_turns(start: Start, pool: Callable[..., Pool]) -> None:
    members = start(echo, echo)
    client = pool(members)
    for _ in range(60):
        client.infer(BODY)
    assert min(m.seen for m in members) > 10


@pytest.mark.parametrize("fault", [hang_up, refuse, garbage])
def test_a_faulty_member_costs_one_more_attempt_and_no_request(
    fault: Behaviour, start: Start, pool: Callable[..., Pool]
) -> None:
    members = start(fault, echo)
    client = pool(members)
    answers = [client.infer(BODY) for _ in range(20)]
    assert {a.attempt for a in answers} <= {1, 2}
    assert len(answers) == 20


def test_a_member_that_hung_up_is_left_alone_for_a_while(start: Start, pool: Callable[..., Pool]) -> None:
    bad, good = start(hang_up, echo)
    client = pool([bad, good])
    for _ in range(30):
        client.infer(BODY)
    assert bad.seen <= 2, "once, or once more on a fresh connection"
    assert good.seen == 30


def test_a_member_that_refuses_is_not_given_up_for_it(start: Start, pool: Callable[..., Pool]) -> None:
    """The request may be at fault: whoever computes it knows, and gives the member up then."""
    bad, good = start(refuse, echo)
    client = pool([bad, good])
    for _ in range(40):
        client.infer(BODY)
    assert bad.seen > 5


def test_a_connection_that_was_closed_while_idle_is_no_failure(
    start: Start, pool: Callable[..., Pool]
) -> None:
    (member,) = start(close_afterwards)
    client = pool([member])
    assert [client.infer(BODY).attempt for _ in range(3)] == [1, 1, 1]
    assert member.connections == 3


def test_a_slow_member_leaves_time_for_another(start: Start, pool: Callable[..., Pool]) -> None:
    slow_one, good = start(slow(30.0), echo)
    client = pool([slow_one, good], timeout_s=0.5)
    began = time.monotonic()
    answers = [client.infer(BODY) for _ in range(10)]
    assert max(a.attempt for a in answers) <= 2
    assert slow_one.seen <= 1, "it is given up for two seconds"
    assert time.monotonic() - began < 30.0


def test_when_nobody_answers_the_deadline_holds_and_the_reason_is_told(
    start: Start, pool: Callable[..., Pool]
) -> None:
    members = start(refuse, refuse)
    with pytest.raises(PoolUnavailable, match=r"answered 400 .*not today") as found:
        pool(members).infer(BODY)
    assert set(found.value.refused_by) == {m.address for m in members}


def test_an_empty_pool_is_told_at_once(start: Start, tmp_path: Path) -> None:
    empty = Pool("stage", 1, list, Board(tmp_path / "board"), 5.0)
    with pytest.raises(PoolUnavailable, match="no member is ready"):
        empty.infer(BODY)


def test_a_member_that_left_loses_its_connection(start: Start, tmp_path: Path) -> None:
    first, second = start(echo, echo)
    addresses = [first.address]
    client = Pool("stage", first.port, lambda: addresses, Board(tmp_path / "board"), 5.0)
    client.infer(BODY)
    addresses[:] = [second.address]
    client.infer(BODY)
    assert set(client._connections) == {second.address}
    client.close()
    assert client._connections == {}


def laned(members: list[Member], tmp_path: Path, long_bytes: int) -> Pool:
    addresses = [m.address for m in members]
    lane = LongLane(long_bytes, 1)
    return Pool("stage", members[0].port, lambda: addresses, Board(tmp_path / "board"), 5.0, lane)


def test_a_request_goes_to_its_lane(start: Start, tmp_path: Path) -> None:
    members = start(echo, echo, echo)
    for long_bytes, seen in ((BODY.size + 1, "short"), (BODY.size, "long")):
        client = laned(members, tmp_path, long_bytes)
        before = [m.seen for m in members]
        for _ in range(20):
            client.infer(BODY)
        asked = [m.seen - b for m, b in zip(members, before, strict=True)]
        assert sum(asked) == 20
        assert (asked[2] == 0 and min(asked[:2]) > 0) if seen == "short" else asked[:2] == [0, 0]
        client.close()


def test_a_lane_whose_member_fails_is_no_reason_to_wait(start: Start, tmp_path: Path) -> None:
    """The only member for long requests hangs up: others answer, and are asked first for a while."""
    members = start(echo, echo, hang_up)
    client = laned(members, tmp_path, BODY.size)
    answers = [client.infer(BODY) for _ in range(10)]
    client.close()
    assert answers[0].attempt == 2
    assert {a.attempt for a in answers[1:]} == {1}


def test_an_answer_says_whether_the_member_had_nothing_else_to_do(start: Start, tmp_path: Path) -> None:
    (member,) = start(echo)
    board, other = Board(tmp_path / "board"), Board(tmp_path / "board")
    client = Pool("stage", member.port, lambda: [member.address], board, 5.0)
    assert client.infer(BODY).idle
    other.busy(member.address, time.monotonic() + 60.0)
    assert not client.infer(BODY).idle
    client.close()
