"""How a step of a change is told, remembered and undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slo_tuner.assess import Picture
from slo_tuner.decision import Decision, Reason
from slo_tuner.memory import Change, ServerMemory, Tried
from slo_tuner.scaling import clamp, clamp_pool
from slo_tuner.settings import PodSettings
from slo_tuner.wanted import restored, wanted

MAX_TRIED = 50


def undo(
    picture: Picture, memory: ServerMemory, change: Change, reason: Reason, outcome: str | None, why: str,
    evidence: Mapping[str, float], now: float,
) -> Decision:  # fmt: skip
    numbers = dict(evidence)
    count = sum(1 for p in picture.context.view.ready_pods if p.name in change.pods)
    after = replace(restored(memory, change), last_action=now, reloads=(*memory.reloads, *([now] * count)))
    if outcome is not None:
        after = remember_try(after, change, outcome, numbers, now)
    message = f"{change.lever} undone: {why}"
    return decision(picture, after, reason, message, None, acted=True, evidence=numbers, lever=change.lever)


def remember_try(
    memory: ServerMemory, change: Change, outcome: str, after: Mapping[str, float], now: float
) -> ServerMemory:
    fingerprint = change.id.rsplit("@", 1)[0]
    tried = Tried(change.lever, fingerprint, outcome, now, dict(change.baseline), dict(after))
    return replace(memory, tried=(*memory.tried, tried)[-MAX_TRIED:])


def baseline(picture: Picture, memory: ServerMemory) -> dict[str, float]:
    """What the whole looked like before: mean, misses and failures per request, rate, pods; and since when it did."""
    found = {"valid_from": memory.last_action, "pods": float(len(picture.context.view.ready_pods))}
    breakdowns = picture.assessment.breakdowns
    if breakdowns:
        found["mean_ms"] = round(1e3 * max(b.mean_s for b in breakdowns), 1)
    worst = [o for o in picture.assessment.objectives if o.observed_s is not None]
    if worst:
        top = max(worst, key=lambda o: (o.observed_s or 0.0) / o.target_s)
        found["observed_ms"] = round(1e3 * (top.observed_s or 0.0), 1)
        if top.attainment is not None:
            found["misses"] = round(1.0 - top.attainment, 4)
    blocks = picture.context.view.blocks
    served = sum(b.requests + b.failures for b in blocks)
    found["failure_share"] = round(sum(b.failures for b in blocks) / served, 5) if served > 0 else 0.0
    return found


def decision(
    picture: Picture, memory: ServerMemory, reason: Reason, message: str, change: Change | None, *,
    acted: bool = False, evidence: Mapping[str, float] | None = None, lever: str | None = None,
) -> Decision:  # fmt: skip
    return Decision(
        reason=reason,
        message=message,
        assessment=picture.assessment,
        memory=memory,
        evidence=dict(evidence or {}),
        settings=wanted(picture.context.view, memory),
        stable=dict(memory.stable),
        replicas=clamp(picture, memory.replicas),
        stage_pool=clamp_pool(picture, memory),
        acted=acted,
        lever=change.lever if change is not None else lever,
    )


def passive(picture: Picture, memory: ServerMemory, message: str) -> Decision:
    settings: dict[str, PodSettings] = {}
    return Decision(
        Reason.CANARY_RESTORED,
        message,
        picture.assessment,
        memory,
        settings=settings,
        stable=dict(memory.stable),
        acted=True,
    )
