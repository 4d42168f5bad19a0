"""What processes tell each other about the pool's members."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slo_operator.remote.board import Board

A, B, C = "10.0.0.1", "10.0.0.2", "fd00::3"

#: another process: says what it does, then waits to be ended
OTHER = """
import sys
from pathlib import Path
from slo_operator.remote.board import Board
board = Board(Path(sys.argv[1]))
getattr(board, sys.argv[2])(sys.argv[3], float(sys.argv[4]))
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "board"


@pytest.fixture
def others(path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def other(path: Path, does: str, address: str, until: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OTHER, str(path), does, address, str(until)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    return process


def least_busy(board: Board, addresses: list[str], now: float) -> list[str]:
    """Those with the fewest requests first; equals in the order in which they were given."""
    waiting = board.outstanding(addresses, now)
    return sorted(waiting, key=lambda address: waiting[address])


def test_the_member_with_the_fewest_requests_of_all_processes_comes_first(
    path: Path, others: list[subprocess.Popen[str]]
) -> None:
    board = Board(path)
    others += [other(path, "busy", A, 100.0), other(path, "busy", A, 100.0), other(path, "busy", C, 100.0)]
    assert least_busy(board, [A, B, C], 50.0) == [B, C, A]
    board.busy(B, 60.0)
    board.busy(C, 60.0)  # a process has one request at a time: this replaces the one before
    assert least_busy(board, [A, C, B], 50.0) == [B, A, C]
    board.free()
    assert least_busy(board, [A, C, B], 50.0) == [B, C, A]


def test_what_a_process_said_grows_stale_when_it_is_killed_in_mid_request(
    path: Path, others: list[subprocess.Popen[str]]
) -> None:
    board = Board(path)
    killed = other(path, "busy", A, 10.0)
    killed.kill()
    killed.communicate()
    assert least_busy(board, [A, B], 9.0) == [B, A]
    assert least_busy(board, [A, B], 11.0) == [A, B]
    others.append(other(path, "busy", B, 100.0))
    assert path.stat().st_size == 256 * 48, "its row went to the next process"


def test_a_member_that_failed_for_one_is_left_alone_by_all_for_a_while(
    path: Path, others: list[subprocess.Popen[str]]
) -> None:
    board = Board(path)
    others.append(other(path, "failed", A, 10.0))
    assert least_busy(board, [A, B], 9.0) == [B]
    assert least_busy(board, [A], 9.0) == []
    assert least_busy(board, [A, B], 10.0) == [A, B]


def test_a_closed_board_leaves_nothing_behind(path: Path) -> None:
    first = Board(path)
    first.busy(A, 100.0)
    first.close()
    assert least_busy(Board(path), [A, B], 1.0) == [A, B]
