"""Better: pod by pod, then the whole is held against the time before the change."""

from __future__ import annotations

from dataclasses import replace

from slo_tuner import canary
from slo_tuner.assess import Picture
from slo_tuner.canary import Comparison, Finding
from slo_tuner.change.record import decision, remember_try, undo
from slo_tuner.decision import Decision, Reason
from slo_tuner.ladder import BETTER, REFUSED, WORSE
from slo_tuner.memory import Change, Phase, ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.wanted import merged, runs

PROMOTE_DEADLINE_S = 900.0
CONFIRM_PATIENCE_S = 60.0


def spread(picture: Picture, memory: ServerMemory, change: Change, finding: Finding, now: float) -> Decision:
    """Better: from here on a pod that starts comes up with the new settings, and the others follow one by one."""
    merged_stable = merged(memory.stable, change.settings)
    spreading = replace(
        change, phase=Phase.PROMOTE, since=now, looks=0, baseline={**change.baseline, **_measured(finding)}
    )
    after = replace(memory, stable=merged_stable, change=spreading, last_action=now)
    following = promote(picture, after, spreading, now)
    message = f"{change.lever} on {change.pods[0]}: {finding.why}"
    return replace(following, reason=Reason.PROMOTING, message=message, acted=True, evidence=finding.evidence)


def promote(picture: Picture, memory: ServerMemory, change: Change, now: float) -> Decision:
    view = picture.context.view
    ready = {p.name: p for p in view.ready_pods}
    # a pod that is not ready yet after its load counts as behind: the next one must not be loaded on top of it
    loading = {p.name for p in view.pods if not p.ready and not p.terminating and p.started <= change.started}
    behind = [
        name
        for name in change.pods
        if name in loading or (name in ready and not runs(ready[name], change.settings))
    ]
    if behind:
        if now - change.since > PROMOTE_DEADLINE_S:
            return undo(
                picture,
                memory,
                change,
                Reason.ROLLED_BACK,
                REFUSED,
                f"{behind[0]} does not take the new settings",
                {},
                now,
            )
        return decision(picture, memory, Reason.PROMOTING, f"{change.lever}: {behind[0]} is loading", change)
    others = sorted(n for n in ready if n not in change.pods)
    # pods that started meanwhile came up with the new settings
    done = [n for n in others if runs(ready[n], change.settings)]
    left = [n for n in others if n not in done]
    if left:
        further = replace(change, pods=(*change.pods, *done, left[0]))
        after = replace(memory, change=further, last_action=now, reloads=(*memory.reloads, now))
        return decision(
            picture, after, Reason.PROMOTING, f"{change.lever}: next on {left[0]}", further, acted=True
        )
    confirming = replace(change, pods=(*change.pods, *done), phase=Phase.CONFIRM, since=now, looks=0)
    after = replace(memory, change=confirming, last_action=now)
    return decision(
        picture,
        after,
        Reason.PROMOTED,
        f"{change.lever} runs on all {len(ready)} pods",
        confirming,
        acted=True,
    )


def confirm_all(
    picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float
) -> Decision:
    finding = canary.confirm(picture.context.view, change, policy)
    if (
        finding.comparison is Comparison.EARLY
        and now - change.since <= 2 * policy.analysis_s + CONFIRM_PATIENCE_S
    ):
        return decision(
            picture, memory, Reason.WAITING, f"{change.lever}: confirming on the whole server", change
        )
    if finding.comparison is Comparison.WORSE:
        return undo(picture, memory, change, Reason.ROLLED_BACK, WORSE, finding.why, finding.evidence, now)
    # last_action stays the moment of the last promotion: the time since then is evidence for the next lever
    after = remember_try(replace(memory, change=None), change, BETTER, finding.evidence, now)
    return decision(
        picture,
        after,
        Reason.PROMOTED,
        f"{change.lever}: {finding.why}",
        None,
        acted=True,
        evidence=finding.evidence,
        lever=change.lever,
    )


def _measured(finding: Finding) -> dict[str, float]:
    return {f"canary_{k}": v for k, v in finding.evidence.items()}
