"""One request to the pool: to the member with the fewest outstanding, once more to another one, within a deadline."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .board import Board
from .lanes import LongLane
from .tensors import Body, Tensor, decode

#: while there is another member to ask, the first may use this share of the time
FIRST_SHARE = 0.6
#: a member that could not be reached or did not answer in time is left alone this long
FAILED_S = 2.0
ATTEMPTS = 2
_HEADER_LENGTH = "Inference-Header-Content-Length"


class PoolUnavailable(Exception):
    """No member gave a result. `refused_by` are those that answered, with something else than a result."""

    def __init__(self, why: str, refused_by: tuple[str, ...] = ()):
        super().__init__(why)
        self.refused_by = refused_by


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, at which attempt it came, and the seconds from the first try to its last byte. `idle`: nothing else of
    this pod's waited for the member that gave it, at the first try."""

    tensors: list[Tensor]
    attempt: int
    seconds: float
    idle: bool


class _Refused(Exception):
    """The member answered: no."""


class Pool:
    """A client of the pool's members, with one connection to each kept open. Not for several threads."""

    def __init__(
        self,
        model: str,
        port: int,
        addresses: Callable[[], list[str]],
        board: Board,
        timeout_s: float,
        lane: LongLane | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._path = f"/v2/models/{model}/infer"
        self._port = port
        self._addresses = addresses
        self._board = board
        self._timeout_s = timeout_s
        self._lane = lane
        self._clock = clock
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._random = random.Random()  # noqa: S311 - spreads load

    def infer(self, body: Body) -> Answer:
        """Raises PoolUnavailable."""
        began = self._clock()
        deadline = began + self._timeout_s
        tried: list[str] = []
        refused: list[str] = []
        why = "no member is ready"
        for attempt in range(1, ATTEMPTS + 1):
            members = self._members(tried, body.size)
            if not members:
                break
            left = deadline - self._clock()
            if left <= 0.0:
                break
            share = FIRST_SHARE if attempt < ATTEMPTS and len(members) > 1 else 1.0
            member, waiting = members[0]
            tried.append(member)
            try:
                found = self._ask(member, body, share * left)
            except _Refused as error:
                refused.append(member)
                why = f"{member} answered {error}"
            except (OSError, http.client.HTTPException) as error:
                self.give_up(member)
                why = f"{member}: {type(error).__name__}: {error}"
            else:
                return Answer(found, attempt, self._clock() - began, attempt == 1 and waiting == 0)
        raise PoolUnavailable(why, tuple(refused))

    def give_up(self, member: str) -> None:
        """Let nobody ask that member for a while."""
        self._drop(member)
        self._board.failed(member, self._clock() + FAILED_S)

    def close(self) -> None:
        for member in list(self._connections):
            self._drop(member)

    def _members(self, tried: list[str], size: int) -> list[tuple[str, int]]:
        """Whom to ask next, the best first, each with the requests that wait there: members of the lane before others,
        and of those the ones with the fewest requests."""
        known = self._addresses()
        for gone in self._connections.keys() - set(known) - set(tried):
            self._drop(gone)
        lane = frozenset(known) if self._lane is None else self._lane.of(known, size)
        others = [address for address in known if address not in tried]
        self._random.shuffle(others)  # so that equals take turns
        waiting = self._board.outstanding(others, self._clock())
        return sorted(waiting.items(), key=lambda item: (item[0] not in lane, item[1]))

    def _ask(self, member: str, body: Body, seconds: float) -> list[Tensor]:
        self._board.busy(member, self._clock() + seconds)
        try:
            connection = self._connections.get(member)
            if connection is not None:
                try:
                    return self._post(connection, body, seconds)
                except (http.client.RemoteDisconnected, ConnectionError):
                    self._drop(member)  # the member had closed it while it was idle: that is no failure
            return self._post(self._open(member), body, seconds)
        finally:
            self._board.free()

    def _open(self, member: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(member, self._port)
        self._connections[member] = connection
        return connection

    def _post(self, connection: http.client.HTTPConnection, body: Body, seconds: float) -> list[Tensor]:
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(body.header_length)}
        connection.request("POST", self._path, body.content, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise _Refused(f"{answer.status} {content[:200].decode(errors='replace')}")
        length = answer.getheader(_HEADER_LENGTH, "")
        try:
            return decode(Body(content, int(length) if length.isdecimal() else len(content)))
        except ValueError as error:
            raise _Refused(str(error)) from None

    def _drop(self, member: str) -> None:
        connection = self._connections.pop(member, None)
        if connection is not None:
            connection.close()
