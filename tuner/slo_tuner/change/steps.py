"""A change begins, goes on, is withdrawn: which phase does what."""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.assess import Picture
from slo_tuner.change.analyse import analyse
from slo_tuner.change.record import baseline, decision, passive, undo
from slo_tuner.change.spread import PROMOTE_DEADLINE_S, confirm_all, promote
from slo_tuner.decision import Decision, Reason
from slo_tuner.ladder import REFUSED, Rung
from slo_tuner.memory import Change, Phase, ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.settings import PodSettings
from slo_tuner.wanted import merged, restored, runs


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
        baseline=baseline(picture, memory),
    )
    after = replace(memory, change=change, last_action=now, calm_since=None, reloads=(*memory.reloads, now))
    message = f"{rung.advice.why}; first on {pod}"
    return decision(
        picture, after, Reason.CANARY_STARTED, message, change, acted=True, evidence=_prediction(rung)
    )


def bring_home(picture: Picture, memory: ServerMemory, settings: PodSettings, now: float) -> Decision:
    """Stages are computed in their server again, pod by pod: what ran well before needs no comparison on one pod, but
    the whole is held against the time before."""
    change = Change(
        id=f"home@{now:.0f}",
        lever="preprocess_pool",
        settings=settings,
        before={name: memory.stable[name] for name in settings},
        pods=(),
        phase=Phase.PROMOTE,
        since=now,
        started=now,
        baseline=baseline(picture, memory),
        live=True,
    )
    after = replace(memory, stable=merged(memory.stable, settings), change=change, last_action=now)
    return replace(
        promote(picture, after, change, now),
        message=f"{', '.join(settings)} back into the servers: the pool is not needed any more",
        acted=True,
    )


def carry_on(picture: Picture, memory: ServerMemory, change: Change, policy: Policy, now: float) -> Decision:
    """The change's next state. Refused loads and vanished pods come first: they end it in any phase."""
    view = picture.context.view
    refused = [r for r in view.refusals if r.pod in change.pods and change.settings.get(r.model) == r.wanted]
    if refused:
        r = refused[0]
        return undo(
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
        return analyse(picture, memory, change, policy, now)
    if change.phase is Phase.PROMOTE:
        return promote(picture, memory, change, now)
    if change.phase is Phase.CONFIRM:
        return confirm_all(picture, memory, change, policy, now)
    return undo(
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
        return passive(picture, replace(memory, change=None), "the change was on every pod already; it stays")
    if change.phase is not Phase.RESTORE:
        back = replace(change, phase=Phase.RESTORE, since=now)
        undone = replace(memory, stable=merged(memory.stable, change.before), change=back, last_action=now)
        return decision(
            picture,
            undone,
            Reason.CANARY_RESTORED,
            "mode was lowered in mid-change: restoring",
            back,
            acted=True,
        )
    if all(runs(p, change.before) for p in view.ready_pods) or now - change.since > PROMOTE_DEADLINE_S:
        return passive(
            picture, replace(memory, change=None), "pods are back to the settings before the change"
        )
    return decision(picture, memory, Reason.WAITING, "restoring the settings before the change", change)


def _prediction(rung: Rung) -> dict[str, float]:
    return {} if rung.advice.predicted_s is None else {"predicted_ms": round(1e3 * rung.advice.predicted_s)}
