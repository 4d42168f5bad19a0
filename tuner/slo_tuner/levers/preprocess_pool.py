"""A starved CPU stage moves off the GPU hosts, into a pool of servers without GPUs, when the hosts have no CPU left.

The pool is sized for the burst peak of all pods together with a replica's loss on top. In each server a stand-in of
the stage forwards to it; its instances only wait, so there are enough of them that no request waits for another. Once
there, long requests may get members of their own (`long_lane`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from slo_tuner.capacity.batches import BatchCurve
from slo_tuner.capacity.server import ServerModel
from slo_tuner.diagnosis.rows import number
from slo_tuner.levers.base import Context, Proposal
from slo_tuner.levers.long_lane import Choice, choose
from slo_tuner.levers.preprocess import LEAST_HEADROOM, cpu, smallest_count, spare_cores, stages
from slo_tuner.settings import ModelSettings, Remote
from slo_tuner.snapshot import StagePoolView

#: a container that was held back in more of its periods than this has no CPU left, whatever its mean says
THROTTLED = 0.25
#: of instances that wait for the pool: room for this multiple of those that a burst keeps waiting on average
WAITING_HEADROOM = 3.0
LEAST_WAITING, MOST_WAITING = 4, 32
#: a request has this share of the target for its way through the pool, but never less than a few computations
TIME_SHARE = 0.5
LEAST_COMPUTATIONS = 4.0
#: what the network is taken to cost where it was not measured yet
NETWORK_S = 0.002


class PreprocessPool:
    name = "preprocess_pool"
    price = 1

    def eligible(self, ctx: Context) -> str | None:
        if ctx.view.stage_pool is None:
            return "no preprocessPool is declared for this server"
        if isinstance(ctx.model, str):
            return ctx.model
        models = stages(ctx)
        if not models:
            return "no preprocessing stage with traffic"
        here = [m for m in models if ctx.stable[m].remote is None]
        if not here:
            lane = _second_lane(ctx)
            return f"every preprocessing stage runs in the pool; {lane}" if isinstance(lane, str) else None
        held = [m for m in here if not movable(ctx, m)]
        if held:
            return f"{held[0]} keeps state between requests or answers in pieces: it cannot be moved"
        return _has_cpu(ctx)

    def propose(self, ctx: Context) -> Proposal | None:
        model, pool = ctx.queueing(), ctx.view.stage_pool
        if pool is None:
            return None
        if all(ctx.stable[m].remote is not None for m in stages(ctx)):
            lane = _second_lane(ctx)
            return None if isinstance(lane, str) else lane
        moved = {m: away(model, m, ctx.stable[m]) for m in stages(ctx) if ctx.stable[m].remote is None}
        replicas = required_replicas(model, pool, tuple(moved))
        why = (
            f"{', '.join(moved)} to a pool of {replicas} servers without GPUs, {pool.processes} processes each:"
            f" {_has_none(ctx)}"
        )
        return Proposal(why, moved, pool_replicas=replicas)


def _second_lane(ctx: Context) -> Proposal | str:
    """Of the first moved stage whose requests a lane would help; or why of none."""
    choices = {stage: choose(ctx, stage) for stage in stages(ctx)}
    for stage, choice in choices.items():
        now = ctx.stable[stage]
        if isinstance(choice, Choice) and now.remote is not None:
            wanted = replace(now, remote=replace(now.remote, lane=choice.lane))
            return Proposal(choice.why, {stage: wanted}, saves_s=choice.saves_s)
    return str(next(iter(choices.values())))


def movable(ctx: Context, model: str) -> bool:
    config = ctx.view.models.get(model)
    return config is not None and not (config.decoupled or config.sequence_batching or config.is_ensemble)


def away(model: ServerModel, name: str, here: ModelSettings) -> ModelSettings:
    """The settings of the stand-in in one server."""
    service = model.curves[name].seconds(1)
    target = min(p.objective.target_s for p in model.pipelines if name in p.members)
    waiting = model.load(name).peak_rps * (service + NETWORK_S)
    count = min(MOST_WAITING, max(LEAST_WAITING, math.ceil(WAITING_HEADROOM * waiting)))
    timeout = max(TIME_SHARE * target, LEAST_COMPUTATIONS * service)
    return replace(here, instances=count, batching=None, remote=Remote(round(1e3 * timeout), here.instances))


def back(away_: ModelSettings) -> ModelSettings:
    """The settings of a moved stage when it is computed in the server again."""
    if away_.remote is None:
        return away_
    return replace(away_, instances=away_.remote.local_instances, remote=None)


def required_replicas(model: ServerModel, pool: StagePoolView, names: tuple[str, ...]) -> int:
    """Replicas for the load of all servers together, one of them lost; at most what is declared."""
    need = 1
    for name in names:
        service = pool.service_s.get(name, model.curves[name].seconds(1))
        stage = replace(model.stage(name, {}), curve=BatchCurve(((1, service),)), max_batch=1)
        load = model.load(name, pods=1, growth=LEAST_HEADROOM)
        need = max(need, math.ceil(smallest_count(model, name, load, stage) / max(1, pool.processes)))
    return min(pool.max_replicas, max(2, need))


def _has_cpu(ctx: Context) -> str | None:
    """Why more processes in the pod are the better lever; None when the host has none left for them."""
    spare, throttled = spare_cores(ctx), _throttled(ctx)
    if spare is None:
        return "the CPU that the hosts have left is not known"
    if spare < 1.0 or throttled > THROTTLED:
        return None
    return f"the hosts have CPU left, more processes are cheaper: {cpu(ctx)}"


def _has_none(ctx: Context) -> str:
    throttled = _throttled(ctx)
    held = f", held back in {throttled:.0%} of their periods" if throttled > THROTTLED else ""
    return f"{cpu(ctx)}{held}"


def _throttled(ctx: Context) -> float:
    return max((number(p.cpu_throttled_share) or 0.0 for p in ctx.view.ready_pods), default=0.0)
