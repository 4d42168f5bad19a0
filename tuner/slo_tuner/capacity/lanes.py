"""What a lane of its own for long requests does to the time of all of them in a pool, by trial.

Each member of the pool has processes that take requests in turn from one queue. A server sends a request to the member
at which the fewest of its own wait, knowing neither how long those take nor what other servers sent: behind a long
request others wait. No formula for that is at hand, so arrivals are drawn (the same ones every time) and counted.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

REQUESTS = 8000
#: the pool is empty at first: these do not count
WARM_UP = 500


@dataclass(frozen=True, slots=True)
class Size:
    """Requests below `bytes_` (the bound of their class), as a share of all, and the seconds that one takes."""

    bytes_: float
    share: float
    service_s: float


@dataclass(frozen=True, slots=True)
class Members:
    """A pool and those who send to it. `long_members` of the `count` are for requests of `long_bytes` and more."""

    count: int
    processes: int
    senders: int
    long_members: int = 0
    long_bytes: int = 0


@lru_cache(maxsize=512)
def time_in_pool(sizes: tuple[Size, ...], rate_rps: float, members: Members, quantile: float | None) -> float:
    """The quantile (None: the mean) of waiting and service over all requests, in seconds; inf where a lane gets more
    work than it can do.

    sizes: every class with a share above 0. rate_rps: arrivals at the whole pool.
    """
    if not _keeps_up(sizes, rate_rps, members):
        return math.inf
    draw = random.Random(1)  # noqa: S311 - the same trial every time
    free = [[0.0] * members.processes for _ in range(members.count)]
    ends: list[list[deque[float]]] = [[deque() for _ in range(members.count)] for _ in range(members.senders)]
    weights = [size.share for size in sizes]
    times = []
    now = 0.0
    for size in draw.choices(sizes, weights, k=REQUESTS):
        now += draw.expovariate(rate_rps)
        mine = ends[draw.randrange(members.senders)]
        chosen = _fewest(mine, _lane(members, size), now, draw)
        start = max(now, free[chosen][0])
        end = start + size.service_s
        heapq.heapreplace(free[chosen], end)
        mine[chosen].append(end)
        times.append(end - now)
    counted = sorted(times[WARM_UP:])
    if quantile is None:
        return math.fsum(counted) / len(counted)
    return counted[min(len(counted) - 1, math.ceil(quantile * len(counted)) - 1)]


def _lane(members: Members, size: Size) -> range:
    cut = members.count - members.long_members
    return range(cut, members.count) if _long(members, size) else range(cut)


def _long(members: Members, size: Size) -> bool:
    """A class lies on one side of the bound: bounds of lanes are bounds of classes."""
    return members.long_members > 0 and size.bytes_ > members.long_bytes


def _fewest(mine: Sequence[deque[float]], lane: range, now: float, draw: random.Random) -> int:
    waiting = []
    for member in lane:
        ends = mine[member]
        # processes end in another order than they began: at most a few stay longer in here than they should
        while ends and ends[0] <= now:
            ends.popleft()
        waiting.append((len(ends), draw.random(), member))
    return min(waiting)[2]


def _keeps_up(sizes: Sequence[Size], rate_rps: float, members: Members) -> bool:
    for long_, count in ((False, members.count - members.long_members), (True, members.long_members)):
        work = math.fsum(size.share * size.service_s for size in sizes if _long(members, size) is long_)
        if work > 0 and rate_rps * work >= count * members.processes:
            return False
    return True
