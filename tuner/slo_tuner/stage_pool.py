"""The pool over time: there before a stage moves, as large as its load needs, gone when nothing runs in it for long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slo_tuner.assess import Picture
from slo_tuner.capacity.batches import BatchCurve
from slo_tuner.capacity.server import ServerModel
from slo_tuner.ladder import REFUSED, Rung
from slo_tuner.levers.preprocess import BUSY_GOAL, LEAST_HEADROOM
from slo_tuner.levers.preprocess_pool import back, required_replicas
from slo_tuner.memory import PoolMemory, ServerMemory, Tried
from slo_tuner.settings import PodSettings
from slo_tuner.wanted import moved

#: a pool that is not ready by then is given up
READY_S = 300.0
#: fewer replicas must have been enough for this long
CALM_S = 300.0
#: an empty pool stays this long: the next burst may want it again
EMPTY_S = 600.0
#: the servers must have been able to do without the pool for this long
HOME_S = 1800.0


def resized(picture: Picture, memory: ServerMemory, now: float) -> ServerMemory:
    """Memory with the pool's size for the present load: up at once, down after a while, none when it is empty."""
    pool, view = memory.pool, picture.context.view.stage_pool
    names = moved(memory)
    if not names:
        empty = pool.replicas > 0 and now - max(pool.since, memory.last_action) > EMPTY_S
        return replace(memory, pool=PoolMemory(since=now)) if empty else memory
    model = picture.context.model
    if picture.idle:
        need = 1
    elif view is None or not isinstance(model, ServerModel) or not set(names) <= model.loads.keys():
        return memory
    else:
        need = required_replicas(model, view, names)
    if need > pool.replicas:
        stages = tuple(sorted({*pool.stages, *names}))
        return replace(memory, pool=replace(pool, replicas=need, stages=stages, since=now, calm_since=None))
    if need == pool.replicas:
        return memory if pool.calm_since is None else replace(memory, pool=replace(pool, calm_since=None))
    if pool.calm_since is None:
        return replace(memory, pool=replace(pool, calm_since=now))
    if now - max(pool.calm_since, pool.since) < CALM_S:
        return memory
    return replace(memory, pool=replace(pool, replicas=pool.replicas - 1, since=now, calm_since=now))


def lacking(picture: Picture, rung: Rung) -> int:
    """Replicas that have to become ready before the rung's stages can move there."""
    wanted, view = rung.advice.pool_replicas, picture.context.view.stage_pool
    if wanted is None or view is None:
        return 0
    serving = view.ready if rung.advice.settings.keys() <= set(view.stages) else 0
    return max(0, wanted - serving)


def started(memory: ServerMemory, rung: Rung, now: float) -> ServerMemory:
    """Memory with a pool for the rung's stages."""
    wanted = max(memory.pool.replicas, rung.advice.pool_replicas or 0)
    stages = tuple(sorted({*moved(memory), *rung.advice.settings}))
    if (memory.pool.replicas, memory.pool.stages) == (wanted, stages):
        return memory
    return replace(memory, pool=PoolMemory(wanted, stages, now))


def given_up(memory: ServerMemory, rung: Rung, now: float) -> ServerMemory | None:
    """Memory in which the lever counts as refused, when the pool has not become ready in time; None while it may."""
    if now - memory.pool.since < READY_S:
        return None
    tried = Tried(rung.advice.lever, rung.fingerprint, REFUSED, now)
    twice = (tried, tried)  # a cluster that has no room for the pool does not get some by asking again
    return replace(memory, pool=PoolMemory(since=now), tried=(*memory.tried, *twice))


def home(picture: Picture, memory: ServerMemory, now: float) -> tuple[ServerMemory, PodSettings]:
    """Memory with the time since which the servers could do without the pool; and, when that is long enough or no
    pool is declared any more, the settings with which they do.
    """
    here = {m: back(s) for m, s in memory.stable.items() if s.remote is not None}
    if not here:
        return memory, {}
    view = picture.context.view.stage_pool
    if view is None:
        return memory, here
    pool = memory.pool
    if not _enough(picture, here, view.service_s):
        return memory if pool.home_since is None else replace(memory, pool=replace(pool, home_since=None)), {}
    if pool.home_since is None:
        return replace(memory, pool=replace(pool, home_since=now)), {}
    return memory, here if now - max(pool.home_since, memory.last_action) > HOME_S else {}


def _enough(picture: Picture, here: PodSettings, service_s: Mapping[str, float]) -> bool:
    """Whether the servers meet every target with margin without the pool, at half as much traffic again; a request
    takes their own processes as long as it takes those of the pool."""
    model = picture.context.model
    if not isinstance(model, ServerModel) or not all(m in model.loads and m in service_s for m in here):
        return False
    alone = replace(model, curves={**model.curves, **{m: BatchCurve(((1, service_s[m]),)) for m in here}})
    if any(alone.busy_at_peak(m, here, growth=LEAST_HEADROOM) > BUSY_GOAL for m in here):
        return False
    predicted = alone.predict(here, growth=LEAST_HEADROOM)
    return alone.worst_ratio(predicted) <= 1.0 - picture.context.policy.margin
