"""Replicas: up when nothing cheaper is left, down when the survivors suffice; within the pool at every instant."""

from __future__ import annotations

import math
from dataclasses import replace

from slo_tuner.assess import Picture
from slo_tuner.capacity.queueing import utilisation
from slo_tuner.capacity.server import ServerModel
from slo_tuner.decision import SLOState, StagePool
from slo_tuner.diagnosis.rows import ModelTimes
from slo_tuner.ladder import recommended
from slo_tuner.levers.replicas import reachable, survivors_suffice
from slo_tuner.memory import ServerMemory
from slo_tuner.wanted import moved

LOOK_BACK_S = 300.0


def up(picture: Picture) -> int | None:
    """The larger number of replicas to go to now, when the ladder recommends just that or nothing can keep up."""
    chosen = recommended(picture.rungs)
    if chosen is not None and chosen.proposal is not None and chosen.proposal.replicas is not None:
        return chosen.proposal.replicas
    return None


def preempts(picture: Picture, memory: ServerMemory) -> int | None:
    """The same while a change is in flight: also when the change itself could not carry the mean load."""
    wanted = up(picture)
    if wanted is not None or memory.change is None or not picture.missed:
        return wanted
    model = picture.context.model
    if not isinstance(model, ServerModel):
        return None
    full = any(
        utilisation(model.stage(m, memory.change.settings), model.load(m).mean_rps) >= 1.0
        for m in model.loads
    )
    rung = next((r for r in picture.rungs if r.advice.lever == "replicas"), None)
    return rung.proposal.replicas if full and rung is not None and rung.proposal is not None else None


def calm(picture: Picture, memory: ServerMemory, now: float) -> ServerMemory:
    """Memory with the time since which one replica less would have done; None as soon as anything speaks against it."""
    quiet = _could_do_with_less(picture)
    if not quiet:
        return memory if memory.calm_since is None else replace(memory, calm_since=None)
    return memory if memory.calm_since is not None else replace(memory, calm_since=now)


def down(picture: Picture, memory: ServerMemory, now: float) -> int | None:
    """One replica less, after a whole look-back of calm."""
    view = picture.context.view
    windows = [p.window_s for p in view.pipelines if math.isfinite(p.window_s)]
    look_back = max([LOOK_BACK_S, *(2.0 * w for w in windows)])
    since = max(
        memory.calm_since if memory.calm_since is not None else now, memory.last_scale, memory.last_action
    )
    if memory.calm_since is None or now - since < look_back:
        return None
    return max(view.min_replicas, view.desired_replicas - 1)


def clamp(picture: Picture, wanted: int | None) -> int | None:
    """Within the resource's limits and what the pool can hold: never a wish above it."""
    if wanted is None:
        return None
    view = picture.context.view
    within = min(max(wanted, view.min_replicas), view.max_replicas)
    return min(within, max(view.desired_replicas, reachable(picture.context)))


def clamp_pool(picture: Picture, memory: ServerMemory) -> StagePool | None:
    """The pool for stages: what is remembered, within what is declared; none where none is. None leaves it alone: what
    was remembered of it is lost, but stages are in it.
    """
    declared, pool = picture.context.view.stage_pool, memory.pool
    if declared is not None and not pool.replicas and moved(memory):
        return None
    if declared is None or not pool.replicas:
        return StagePool()
    return StagePool(min(pool.replicas, declared.max_replicas), pool.stages)


def _could_do_with_less(picture: Picture) -> bool:
    ctx, view = picture.context, picture.context.view
    if view.desired_replicas <= max(view.min_replicas, 1 if not picture.idle else view.min_replicas):
        return False
    if len(view.pods) > view.desired_replicas or any(p.terminating for p in view.pods):
        return False  # the last step down is still under way
    if picture.idle:
        return True
    if picture.missing or picture.missed:
        return False
    states = {o.state for o in picture.assessment.objectives}
    if not states <= {SLOState.MET, SLOState.UNDECIDED} or not states:
        return False
    for p in view.pipelines:
        t = ctx.times[p.model]
        # what is cached today may not be tomorrow: capacity is for the computed load
        if (
            not isinstance(t, ModelTimes)
            or not t.complete
            or t.pending is None
            or t.pending > len(view.ready_pods)
            or t.hit_share > 0.2
        ):
            return False
        gpu_unknown = ctx.gpu_busy() is None and any(pod.gpu_busy for pod in view.ready_pods)
        if gpu_unknown:
            return False
    return survivors_suffice(ctx)
