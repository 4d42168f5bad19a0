"""A scripted tuner for tests of the acting: one canary, and no more after a refusal."""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.decide import decide
from slo_tuner.decision import Decision, Reason
from slo_tuner.memory import Change, Phase, ServerMemory, Tried
from slo_tuner.policy import Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import PoolView, ServerView
from slo_tuner.wanted import wanted

FOUR = {"preprocessing": ModelSettings(instances=4, max_batch_size=16)}


def canary_brain(
    view: ServerView, pool: PoolView, memory: ServerMemory, policy: Policy, now: float
) -> Decision:
    """Four preprocessing processes on the first pod as soon as two are ready."""
    seen = decide(view, pool, memory, replace(policy, suspend=True), now)
    memory, reason, acted = seen.memory, Reason.WAITING, False
    if view.refusals:
        tried = Tried("preprocess_instances", "script", "refused", now)
        memory, reason, acted = replace(memory, change=None, tried=(tried,)), Reason.LOAD_REFUSED, True
    elif memory.change is None and not memory.tried and len(view.ready_pods) == 2:
        change = Change(
            id="script",
            lever="preprocess_instances",
            settings=FOUR,
            before={"preprocessing": memory.stable["preprocessing"]},
            pods=(view.ready_pods[0].name,),
            phase=Phase.ANALYSE,
            since=now,
            started=now,
        )
        memory, reason, acted = replace(memory, change=change, last_action=now), Reason.CANARY_STARTED, True
    return replace(
        seen,
        reason=reason,
        message="script",
        memory=memory,
        settings=wanted(view, memory),
        stable=dict(memory.stable),
        acted=acted,
    )
