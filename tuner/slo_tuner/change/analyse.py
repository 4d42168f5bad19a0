"""One pod has the new setting: is it live, is it undisturbed, and what does the comparison say."""

from __future__ import annotations

from dataclasses import replace

from slo_tuner import canary
from slo_tuner.assess import Picture
from slo_tuner.canary import Comparison, Finding
from slo_tuner.change.record import decision, undo
from slo_tuner.change.spread import spread
from slo_tuner.decision import Decision, Reason
from slo_tuner.ladder import INCONCLUSIVE, REFUSED, WORSE
from slo_tuner.memory import Change, ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.snapshot import PodView, ServerView
from slo_tuner.wanted import pod_named, runs

LOAD_DEADLINE_S = 120.0
PATIENCE_S = 60.0
#: a pod that is busy with our own load may miss a probe or two; longer than this it is in trouble
UNREADY_S = 60.0


def analyse(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    """The next state of a change that is on one pod."""
    view = picture.context.view
    disturbed = _disturbed(view, change, now)
    if disturbed:
        return undo(picture, memory, change, Reason.CANARY_ABANDONED, None, disturbed, {}, now)
    name = change.pods[0]
    pod = pod_named(view, name)
    running = pod is not None and runs(pod, change.settings)
    if not change.live:
        return _await_live(picture, memory, change, pod if running else None, now)
    if pod is None or not pod.ready or (not pod.settings and now - change.since <= _longest(policy)):
        return decision(picture, memory, Reason.WAITING, f"waiting for {name} to answer again", change)
    if not running:
        why = f"{name} lost the new settings while it was compared"
        return undo(picture, memory, change, Reason.CANARY_ABANDONED, None, why, {}, now)
    return _judge(picture, memory, change, policy, now)


def _longest(policy: Policy) -> float:
    """Seconds after which a comparison ends, whatever it has seen."""
    return policy.analysis_s * canary.MAX_LOOKS + canary.SETTLE_S + PATIENCE_S


def _await_live(
    picture: Picture, memory: ServerMemory, change: Change, running: PodView | None, now: float
) -> Decision:
    """The comparison's clock starts when the canary is seen to run the new settings."""
    name = change.pods[0]
    if running is None and now - change.started > LOAD_DEADLINE_S:
        why = f"{name} does not run the new settings after {LOAD_DEADLINE_S:.0f} s"
        return undo(picture, memory, change, Reason.CANARY_ABANDONED, REFUSED, why, {}, now)
    if running is None:
        return decision(
            picture, memory, Reason.WAITING, f"waiting for {name} to run the new settings", change
        )
    seen = replace(change, live=True, since=now)
    message = f"comparing {change.lever} on {name} with its peers"
    return decision(picture, replace(memory, change=seen), Reason.WAITING, message, seen)


def _judge(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    view = picture.context.view
    finding = canary.compare(view, change, policy, now)
    longest = _longest(policy)
    if finding.comparison is Comparison.EARLY and now - change.since > longest:
        finding = Finding(
            Comparison.INCONCLUSIVE,
            f"too little to compare in {longest:.0f} s ({finding.why})",
            finding.evidence,
            True,
        )
    if finding.comparison is Comparison.EARLY:
        return decision(
            picture,
            memory,
            Reason.WAITING,
            f"comparing {change.lever} on {change.pods[0]} with its peers",
            change,
        )
    if finding.comparison is Comparison.WORSE:
        return undo(
            picture, memory, change, Reason.CANARY_RESTORED, WORSE, finding.why, finding.evidence, now
        )
    if finding.comparison is Comparison.BETTER:
        return spread(picture, memory, change, finding, now)
    if finding.final:
        return undo(
            picture, memory, change, Reason.CANARY_RESTORED, INCONCLUSIVE, finding.why, finding.evidence, now
        )
    longer = replace(memory, change=replace(change, looks=finding.looks))
    return decision(
        picture,
        longer,
        Reason.CANARY_EXTENDED,
        f"look {finding.looks} of {canary.MAX_LOOKS}: {finding.why}",
        change,
        acted=True,
        evidence=finding.evidence,
    )


def _disturbed(view: ServerView, change: Change, now: float) -> str | None:
    """What makes the comparison worthless: a pod that came, went or restarted since."""
    name = change.pods[0]
    pod = pod_named(view, name)
    if pod is None or pod.terminating:
        return f"{name} is gone"
    if pod.started > change.started:
        return f"{name} restarted in mid-comparison"
    allowed = UNREADY_S if change.live else LOAD_DEADLINE_S
    if not pod.ready and now - change.since > allowed:
        return f"{name} is not ready"
    fresh = [p.name for p in view.ready_pods if p.started > change.started]
    if fresh:
        return f"{fresh[0]} started in mid-comparison"
    peers = change.baseline.get("pods")
    there = len({p.name for p in view.ready_pods} | {name})
    if peers is not None and there != int(peers):
        return f"{there} pods are there, {int(peers)} were when it began"
    return None
