"""A change in flight, one tick further: on one pod → compared → pod by pod → confirmed, or undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slo_tuner import canary
from slo_tuner.assess import Picture
from slo_tuner.canary import Comparison, Finding
from slo_tuner.decision import Decision, Reason
from slo_tuner.ladder import BETTER, INCONCLUSIVE, REFUSED, WORSE, Rung
from slo_tuner.memory import Change, Phase, ServerMemory, Tried
from slo_tuner.policy import Policy
from slo_tuner.scaling import clamp
from slo_tuner.settings import PodSettings
from slo_tuner.snapshot import PodView, ServerView
from slo_tuner.wanted import merged, pod_named, restored, runs, wanted

LOAD_DEADLINE_S = 120.0
PROMOTE_DEADLINE_S = 900.0
PATIENCE_S = 60.0
MAX_TRIED = 50


def begin(picture: Picture, rung: Rung, memory: ServerMemory, policy: Policy, now: float) -> Decision:
    """Put a lever's proposal on one pod. The canary is the pod that has served longest, so that it is warm."""
    view, settings = picture.context.view, rung.advice.settings
    pod = min(view.ready_pods, key=lambda p: (p.started, p.name)).name
    change = Change(
        id=f"{rung.fingerprint}@{now:.0f}",
        lever=rung.advice.lever,
        settings=settings,
        before={name: memory.stable[name] for name in settings if name in memory.stable},
        pods=(pod,),
        phase=Phase.ANALYSE,
        since=now,
        started=now,
        baseline=_baseline(picture, memory),
    )
    after = replace(memory, change=change, last_action=now, calm_since=None, reloads=(*memory.reloads, now))
    message = f"{rung.advice.why}; first on {pod}"
    return _decision(
        picture, after, Reason.CANARY_STARTED, message, change, acted=True, evidence=_prediction(rung)
    )


def carry_on(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    """The change's next state. Refused loads and vanished pods come first: they end it in any phase."""
    view = picture.context.view
    refused = [r for r in view.refusals if r.pod in change.pods and change.settings.get(r.model) == r.wanted]
    if refused:
        r = refused[0]
        return _undo(
            picture,
            memory,
            change,
            Reason.LOAD_REFUSED,
            REFUSED,
            f"{r.pod} refused {r.model}: {r.message}",
            {},
            now,
        )
    if change.phase is Phase.ANALYSE:
        return _analyse(picture, memory, change, policy, now)
    if change.phase is Phase.PROMOTE:
        return _promote(picture, memory, change, now)
    if change.phase is Phase.CONFIRM:
        return _confirm(picture, memory, change, policy, now)
    return _undo(
        picture,
        memory,
        change,
        Reason.CANARY_RESTORED,
        None,
        "back to the settings before the change",
        {},
        now,
    )


def abandon(memory: ServerMemory, change: Change, now: float) -> ServerMemory:
    """Memory without the change, its result discarded: something more urgent came up."""
    return replace(restored(memory, change), last_action=now)


def withdraw(picture: Picture, memory: ServerMemory, change: Change, now: float) -> Decision:
    """The mode was lowered in mid-change: return the pods to what ran before, then write nothing any more.

    A change that is on every pod already is left as it is.
    """
    view = picture.context.view
    if change.phase is Phase.CONFIRM:
        return _passive(
            picture, replace(memory, change=None), "the change was on every pod already; it stays"
        )
    if change.phase is not Phase.RESTORE:
        back = replace(change, phase=Phase.RESTORE, since=now)
        undone = replace(memory, stable=merged(memory.stable, change.before), change=back, last_action=now)
        return _decision(
            picture,
            undone,
            Reason.CANARY_RESTORED,
            "mode was lowered in mid-change: restoring",
            back,
            acted=True,
        )
    if all(runs(p, change.before) for p in view.ready_pods) or now - change.since > PROMOTE_DEADLINE_S:
        return _passive(
            picture, replace(memory, change=None), "pods are back to the settings before the change"
        )
    return _decision(picture, memory, Reason.WAITING, "restoring the settings before the change", change)


def _analyse(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    view = picture.context.view
    disturbed = _disturbed(view, change)
    if disturbed:
        return _undo(picture, memory, change, Reason.CANARY_ABANDONED, None, disturbed, {}, now)
    pod = pod_named(view, change.pods[0])
    running = pod is not None and runs(pod, change.settings)
    if not change.live:
        return _await_live(picture, memory, change, pod if running else None, now)
    if not running:
        why = f"{change.pods[0]} lost the new settings while it was compared"
        return _undo(picture, memory, change, Reason.CANARY_ABANDONED, None, why, {}, now)
    return _judge(picture, memory, change, policy, now)


def _await_live(
    picture: Picture, memory: ServerMemory, change: Change, running: PodView | None, now: float
) -> Decision:
    """The comparison's clock starts when the canary is seen to run the new settings."""
    name = change.pods[0]
    if running is None and now - change.started > LOAD_DEADLINE_S:
        why = f"{name} does not run the new settings after {LOAD_DEADLINE_S:.0f} s"
        return _undo(picture, memory, change, Reason.CANARY_ABANDONED, REFUSED, why, {}, now)
    if running is None:
        return _decision(
            picture, memory, Reason.WAITING, f"waiting for {name} to run the new settings", change
        )
    loaded = running.loaded_at if running.loaded_at is not None and running.loaded_at <= now else now
    seen = replace(change, live=True, since=max(change.started, loaded))
    message = f"comparing {change.lever} on {name} with its peers"
    return _decision(picture, replace(memory, change=seen), Reason.WAITING, message, seen)


def _judge(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    view = picture.context.view
    finding = canary.compare(view, change, policy, now)
    longest = policy.analysis_s * canary.MAX_LOOKS + canary.SETTLE_S + PATIENCE_S
    if finding.comparison is Comparison.EARLY and now - change.since > longest:
        finding = Finding(
            Comparison.INCONCLUSIVE,
            f"too little to compare in {longest:.0f} s ({finding.why})",
            finding.evidence,
            True,
        )
    if finding.comparison is Comparison.EARLY:
        return _decision(
            picture,
            memory,
            Reason.WAITING,
            f"comparing {change.lever} on {change.pods[0]} with its peers",
            change,
        )
    if finding.comparison is Comparison.WORSE:
        return _undo(
            picture, memory, change, Reason.CANARY_RESTORED, WORSE, finding.why, finding.evidence, now
        )
    if finding.comparison is Comparison.BETTER:
        return _spread(picture, memory, change, finding, now)
    if finding.final:
        return _undo(
            picture, memory, change, Reason.CANARY_RESTORED, INCONCLUSIVE, finding.why, finding.evidence, now
        )
    longer = replace(memory, change=replace(change, looks=change.looks + 1))
    return _decision(
        picture,
        longer,
        Reason.CANARY_EXTENDED,
        f"look {change.looks + 1}: {finding.why}",
        change,
        acted=True,
        evidence=finding.evidence,
    )


def _disturbed(view: ServerView, change: Change) -> str | None:
    """What makes the comparison worthless: a pod that came, went or restarted since."""
    pod = pod_named(view, change.pods[0])
    if pod is None or pod.terminating:
        return f"{change.pods[0]} is gone"
    if pod.started > change.started:
        return f"{change.pods[0]} restarted in mid-comparison"
    if not pod.ready:
        return f"{change.pods[0]} is not ready"
    fresh = [p.name for p in view.ready_pods if p.started > change.started]
    if fresh:
        return f"{fresh[0]} started in mid-comparison"
    peers = change.baseline.get("pods")
    if peers is not None and len(view.ready_pods) != int(peers):
        return f"{len(view.ready_pods)} pods are ready, {int(peers)} were when it began"
    return None


def _spread(picture: Picture, memory: ServerMemory, change: Change, finding: Finding, now: float) -> Decision:
    """Better: from here on a pod that starts comes up with the new settings, and the others follow one by one."""
    merged_stable = merged(memory.stable, change.settings)
    spreading = replace(
        change, phase=Phase.PROMOTE, since=now, looks=0, baseline={**change.baseline, **_measured(finding)}
    )
    after = replace(memory, stable=merged_stable, change=spreading, last_action=now)
    following = _promote(picture, after, spreading, now)
    message = f"{change.lever} on {change.pods[0]}: {finding.why}"
    return replace(following, reason=Reason.PROMOTING, message=message, acted=True, evidence=finding.evidence)


def _promote(picture: Picture, memory: ServerMemory, change: Change, now: float) -> Decision:
    view = picture.context.view
    ready = {p.name: p for p in view.ready_pods}
    behind = [name for name in change.pods if name in ready and not runs(ready[name], change.settings)]
    if behind:
        if now - change.since > PROMOTE_DEADLINE_S:
            return _undo(
                picture,
                memory,
                change,
                Reason.ROLLED_BACK,
                REFUSED,
                f"{behind[0]} does not take the new settings",
                {},
                now,
            )
        return _decision(picture, memory, Reason.PROMOTING, f"{change.lever}: {behind[0]} is loading", change)
    others = sorted(n for n in ready if n not in change.pods)
    # pods that started meanwhile came up with the new settings
    done = [n for n in others if runs(ready[n], change.settings)]
    left = [n for n in others if n not in done]
    if left:
        further = replace(change, pods=(*change.pods, *done, left[0]))
        after = replace(memory, change=further, last_action=now, reloads=(*memory.reloads, now))
        return _decision(
            picture, after, Reason.PROMOTING, f"{change.lever}: next on {left[0]}", further, acted=True
        )
    confirming = replace(change, pods=(*change.pods, *done), phase=Phase.CONFIRM, since=now, looks=0)
    after = replace(memory, change=confirming, last_action=now)
    return _decision(
        picture,
        after,
        Reason.PROMOTED,
        f"{change.lever} runs on all {len(ready)} pods",
        confirming,
        acted=True,
    )


def _confirm(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    finding = canary.confirm(picture.context.view, change, policy)
    if finding.comparison is Comparison.EARLY and now - change.since <= 2 * policy.analysis_s + PATIENCE_S:
        return _decision(
            picture, memory, Reason.WAITING, f"{change.lever}: confirming on the whole server", change
        )
    if finding.comparison is Comparison.WORSE:
        return _undo(picture, memory, change, Reason.ROLLED_BACK, WORSE, finding.why, finding.evidence, now)
    # last_action stays the moment of the last promotion: the time since then is evidence for the next lever
    after = remember_try(replace(memory, change=None), change, BETTER, finding.evidence, now)
    return _decision(
        picture,
        after,
        Reason.PROMOTED,
        f"{change.lever}: {finding.why}",
        None,
        acted=True,
        evidence=finding.evidence,
        lever=change.lever,
    )


def _undo(
    picture: Picture, memory: ServerMemory, change: Change, reason: Reason, outcome: str | None, why: str,
    evidence: Mapping[str, float], now: float,
) -> Decision:  # fmt: skip
    numbers = dict(evidence)
    count = sum(1 for p in picture.context.view.ready_pods if p.name in change.pods)
    after = replace(restored(memory, change), last_action=now, reloads=(*memory.reloads, *([now] * count)))
    if outcome is not None:
        after = remember_try(after, change, outcome, numbers, now)
    message = f"{change.lever} undone: {why}"
    return _decision(picture, after, reason, message, None, acted=True, evidence=numbers, lever=change.lever)


def remember_try(
    memory: ServerMemory, change: Change, outcome: str, after: Mapping[str, float], now: float
) -> ServerMemory:
    fingerprint = change.id.rsplit("@", 1)[0]
    tried = Tried(change.lever, fingerprint, outcome, now, dict(change.baseline), dict(after))
    return replace(memory, tried=(*memory.tried, tried)[-MAX_TRIED:])


def _baseline(picture: Picture, memory: ServerMemory) -> dict[str, float]:
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


def _measured(finding: Finding) -> dict[str, float]:
    return {f"canary_{k}": v for k, v in finding.evidence.items()}


def _prediction(rung: Rung) -> dict[str, float]:
    return {} if rung.advice.predicted_s is None else {"predicted_ms": round(1e3 * rung.advice.predicted_s)}


def _decision(
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
        acted=acted,
        lever=change.lever if change is not None else lever,
    )


def _passive(picture: Picture, memory: ServerMemory, message: str) -> Decision:
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
