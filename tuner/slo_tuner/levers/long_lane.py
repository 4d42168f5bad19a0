"""A second lane in the pool: members that only long requests go to, where others wait behind them.

A member that computes a long prompt looks no busier than one with a short prompt. The waiting is measured, by size:
the time of all requests against that of those which found an idle member. What a lane would change is tried out in
the model of the pool (`capacity.lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slo_tuner.capacity.lanes import Members, Size, time_in_pool
from slo_tuner.diagnosis.rows import number
from slo_tuner.levers.base import Context
from slo_tuner.settings import LongLane
from slo_tuner.snapshot import SizeView, StagePoolView

#: requests that wait less than this share of the target on average are not worth a thought
LEAST_WAIT = 0.01
#: the stage's quantile has to fall by this share of the target
LEAST_GAIN = 0.05
#: requests are long when they are less than half of all, and there are enough of them to know their time
MOST_LONG, LEAST_LONG = 0.5, 0.0005
MOST_MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The lane (None: no lane) that a stage would be better off with by `saves_s` in its quantile, and why."""

    lane: LongLane | None
    saves_s: float
    why: str


def choose(ctx: Context, stage: str) -> Choice | str:
    """The lane of a moved stage; or why the present one stays."""
    pool, remote, model = ctx.view.stage_pool, ctx.stable[stage].remote, ctx.queueing()
    sizes = pool.sizes.get(stage, ()) if pool is not None else ()
    wait = _wait(sizes)
    if pool is None or remote is None or wait is None:
        return "how long requests wait in the pool is not known yet"
    objective = min(
        (p.objective for p in model.pipelines if stage in p.members), key=lambda one: one.target_s
    )
    told = by_size(sizes)
    if wait < LEAST_WAIT * objective.target_s:
        return f"requests wait {_ms(wait)} there, too little for a second lane ({told})"
    known = _known(sizes, number(pool.network_s) or 0.0)
    rate = model.load(stage, pods=1).peak_rps

    def time(lane: LongLane | None) -> float:
        return time_in_pool(known, rate, _members(pool, model.pods, lane), objective.quantile)

    best = min(((time(lane), n, lane) for n, lane in enumerate(_lanes(known, pool.ready))), default=None)
    now = time(remote.lane)
    if best is None or not now - best[0] >= LEAST_GAIN * objective.target_s or best[2] == remote.lane:
        return f"requests wait {_ms(wait)} there, and a second lane would not change that much ({told})"
    saves = min(now, objective.target_s) - best[0]
    lane = best[2]
    what = (
        "one lane again"
        if lane is None
        else f"requests of {lane.from_bytes} bytes and more to {lane.members} of {pool.ready} replicas"
    )
    return Choice(
        lane,
        saves,
        f"{stage}: {what}; they wait {_ms(wait)} there ({told}), {_ms(saves)} less of {objective.name}",
    )


def by_size(sizes: Sequence[SizeView]) -> str:
    """The waiting by size, for people."""
    told = [
        f"{_bytes(size)} {_ms(max(0.0, size.mean_s - size.alone_s))}"
        for size in sizes
        if size.alone_s is not None
    ]
    return "wait by size: " + ", ".join(told)


def _wait(sizes: Sequence[SizeView]) -> float | None:
    known = [(s.requests, max(0.0, s.mean_s - s.alone_s)) for s in sizes if s.alone_s is not None]
    total = math.fsum(requests for requests, _ in known)
    return math.fsum(requests * wait for requests, wait in known) / total if total > 0 else None


def _known(sizes: Sequence[SizeView], network_s: float) -> tuple[Size, ...]:
    """Rounded, so that the same trial answers for a while."""
    total = math.fsum(size.requests for size in sizes)
    found = []
    for size in sizes:
        alone = size.mean_s if size.alone_s is None else min(size.alone_s, size.mean_s)
        service = float(f"{max(1e-4, alone - network_s):.2g}")
        found.append(Size(size.below_bytes, float(f"{size.requests / total:.2g}"), service))
    return tuple(found)


def _lanes(sizes: Sequence[Size], members: int) -> list[LongLane | None]:
    """No lane, and all that are worth a trial; simple ones first."""
    found: list[LongLane | None] = [None]
    for count in range(1, min(MOST_MEMBERS, members - 1) + 1):
        for size in sizes:
            long_ = math.fsum(other.share for other in sizes if other.bytes_ > size.bytes_)
            if math.isfinite(size.bytes_) and LEAST_LONG <= long_ <= MOST_LONG:
                found.append(LongLane(int(size.bytes_), count))
    return found


def _members(pool: StagePoolView, senders: int, lane: LongLane | None) -> Members:
    if lane is None or lane.members >= pool.ready:
        return Members(max(1, pool.ready), pool.processes, senders)
    return Members(pool.ready, pool.processes, senders, lane.members, lane.from_bytes)


def _bytes(size: SizeView) -> str:
    return "the largest" if math.isinf(size.below_bytes) else f"< {size.below_bytes:g} B"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
