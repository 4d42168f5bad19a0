"""One tick: what should be true from now on.

Pure and total: the same inputs give the same decision, and odd signals become "unknown", which holds
everything where it is. The order below is the order of urgency.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner import scaling, stage_pool
from slo_tuner.assess import Picture, assess
from slo_tuner.change import abandon, begin, bring_home, carry_on, withdraw
from slo_tuner.change.record import decision
from slo_tuner.decision import BottleneckReason, Decision, Reason
from slo_tuner.ladder import Rung, recommended
from slo_tuner.memory import Phase, ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.snapshot import PoolView, ServerView
from slo_tuner.wanted import remember, runs

HOUR_S = 3600.0
STARTING_S = 600.0


def decide(server: ServerView, pool: PoolView, memory: ServerMemory, policy: Policy, now: float) -> Decision:
    """What should be true of this server from `now` (seconds since the epoch) on, and why.

    Store `memory` before carrying the decision out. `settings` is empty and `replicas` None whenever
    nothing may be written (suspended, not managed, Observe or Recommend, unless a change that was in
    flight has to be taken back).
    """
    memory = _trimmed(remember(server, memory), now)
    picture = assess(server, pool, memory, policy, memory.stable, now)
    if not server.managed:
        return _hold(
            picture, memory, Reason.OBSERVE_ONLY, "observed only: the server belongs to someone else"
        )
    if policy.suspend:
        return _hold(picture, memory, Reason.SUSPENDED, "suspended: nothing is written")
    if policy.mode is not Mode.AUTO:
        change = memory.change
        return _advise(picture, memory, policy) if change is None else withdraw(picture, memory, change, now)
    return _act(picture, memory, policy, now)


def _act(picture: Picture, memory: ServerMemory, policy: Policy, now: float) -> Decision:
    more = scaling.preempts(picture, memory)
    if more is not None and scaling.clamp(picture, more) != picture.context.view.desired_replicas:
        return _scale_up(picture, memory, more, now)
    resized = stage_pool.resized(picture, memory, now)
    if resized.pool.replicas != memory.pool.replicas:
        return _resize_pool(picture, memory, resized)
    memory = resized
    if memory.change is not None:
        return carry_on(picture, memory, memory.change, policy, now)
    memory = scaling.calm(picture, memory, now)
    if picture.missing:
        return _keep(picture, memory, Reason.NO_DATA, f"holding: {picture.missing}")
    fewer = scaling.down(picture, memory, now)
    if fewer is not None and fewer < picture.context.view.desired_replicas:
        return _scale_down(picture, memory, fewer, now)
    if picture.idle:
        return _keep(picture, memory, Reason.IDLE, "no traffic")
    memory, home = stage_pool.home(picture, memory, now)
    if home:
        return bring_home(picture, memory, home, now)
    if not picture.missed and not (picture.tight and recommended(picture.rungs)):
        return _keep(picture, memory, *_calm_word(picture))
    return _repair(picture, memory, policy, now)


def _repair(picture: Picture, memory: ServerMemory, policy: Policy, now: float) -> Decision:
    view = picture.context.view
    bottleneck = picture.assessment.bottleneck
    rung = recommended(picture.rungs)
    if bottleneck is not None and bottleneck.reason is BottleneckReason.SLO_INFEASIBLE:
        return _keep(picture, memory, Reason.INFEASIBLE, bottleneck.message)
    if rung is None:
        short = picture.assessment.shortfall_gpus
        if short > 0:
            return _keep(
                picture,
                memory,
                Reason.NO_CAPACITY,
                f"{short} more GPUs would be needed in pool {picture.context.pool.name}",
            )
        return _keep(picture, memory, Reason.LEVERS_EXHAUSTED, "no lever is left that is predicted to help")
    unsettled = [p.name for p in view.ready_pods if not runs(p, memory.stable)]
    if unsettled:
        return _keep(
            picture, memory, Reason.WAITING, f"{unsettled[0]} does not run the settings of record yet"
        )
    if len(view.ready_pods) != view.desired_replicas and now - memory.last_action < STARTING_S:
        return _keep(picture, memory, Reason.WAITING, "waiting for all replicas before anything is changed")
    if len(memory.reloads) + len(view.ready_pods) > policy.reloads_per_hour:
        return _keep(
            picture,
            memory,
            Reason.BUDGET_SPENT,
            f"the budget of {policy.reloads_per_hour} reloads per hour is used up",
        )
    lacking = stage_pool.lacking(picture, rung)
    if lacking:
        return _start_pool(picture, memory, rung, lacking, now)
    return begin(picture, rung, memory, policy, now)


def _start_pool(picture: Picture, memory: ServerMemory, rung: Rung, lacking: int, now: float) -> Decision:
    """The pool has to be there before a stage moves into it."""
    after = stage_pool.started(memory, rung, now)
    count = after.pool.replicas
    if after != memory:
        message = f"starting it first: {rung.advice.why}"
        return _keep(picture, after, Reason.POOL_STARTING, message, lever=rung.advice.lever)
    without = stage_pool.given_up(memory, rung, now)
    if without is not None:
        message = (
            f"the pool is given up: {lacking} of {count} replicas not ready after {stage_pool.READY_S:.0f} s"
        )
        return replace(
            _keep(picture, without, Reason.POOL_GONE, message), acted=True, lever=rung.advice.lever
        )
    return _keep(picture, memory, Reason.WAITING, f"waiting for {lacking} of {count} replicas of the pool")


def _resize_pool(picture: Picture, memory: ServerMemory, after: ServerMemory) -> Decision:
    before, count = memory.pool.replicas, after.pool.replicas
    if count == 0:
        reason, message = Reason.POOL_GONE, f"the pool is empty: its {before} replicas go"
    else:
        reason, message = Reason.POOL_SCALED, f"pool {before} → {count} replicas"
    return _keep(picture, after, reason, message, lever="preprocess_pool")


def _scale_up(picture: Picture, memory: ServerMemory, count: int, now: float) -> Decision:
    discarded = ""
    if memory.change is not None and memory.change.phase is Phase.ANALYSE:
        discarded = f"; the canary of {memory.change.lever} is restored and its result discarded"
        memory = abandon(memory, memory.change, now)
    before = picture.context.view.desired_replicas
    memory = replace(memory, replicas=count, last_action=now, last_scale=now, calm_since=None)
    message = f"{before} → {count} replicas{discarded}"
    return _keep(picture, memory, Reason.SCALED_UP, message, lever="replicas")


def _scale_down(picture: Picture, memory: ServerMemory, count: int, now: float) -> Decision:
    before = picture.context.view.desired_replicas
    memory = replace(memory, replicas=count, last_action=now, last_scale=now, calm_since=None)
    why = "idle" if picture.idle else "the others meet every objective with margin"
    return _keep(picture, memory, Reason.SCALED_DOWN, f"{before} → {count} replicas: {why}", lever="replicas")


def _advise(picture: Picture, memory: ServerMemory, policy: Policy) -> Decision:
    if picture.missing:
        return _hold(picture, memory, Reason.NO_DATA, picture.missing)
    rung = recommended(picture.rungs)
    if policy.mode is Mode.RECOMMEND and rung is not None:
        return _hold(picture, memory, Reason.RECOMMENDED, f"{rung.advice.lever}: {rung.advice.why}")
    return _hold(picture, memory, Reason.OBSERVE_ONLY, f"mode {policy.mode.value}: nothing is changed")


def _calm_word(picture: Picture) -> tuple[Reason, str]:
    if any(o.state.value == "Missed" for o in picture.assessment.objectives):
        return Reason.WAITING, "gathering evidence from after the last action"
    if not picture.assessment.objectives:
        return Reason.WAITING, "no objective is declared"
    if all(o.state.value in ("NotMeasurable", "Idle") for o in picture.assessment.objectives):
        return Reason.NO_DATA, "no objective can be measured"
    return Reason.SLO_MET, "no objective is missed"


def _hold(picture: Picture, memory: ServerMemory, reason: Reason, message: str) -> Decision:
    """Nothing may be written."""
    return Decision(reason, message, picture.assessment, memory, stable=dict(memory.stable))


def _keep(
    picture: Picture, memory: ServerMemory, reason: Reason, message: str, *, lever: str | None = None
) -> Decision:
    """Restate what should be true: a pod that drifted is brought back by this. With a lever something was done."""
    return decision(picture, memory, reason, message, None, acted=lever is not None, lever=lever)


def _trimmed(memory: ServerMemory, now: float) -> ServerMemory:
    recent = tuple(t for t in memory.reloads if now - t < HOUR_S)
    return memory if recent == memory.reloads else replace(memory, reloads=recent)
