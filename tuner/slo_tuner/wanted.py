"""What every pod should run right now, by the memory: the stable settings, and a change's on its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slo_tuner.memory import Change, Phase, ServerMemory
from slo_tuner.settings import ModelSettings, PodSettings
from slo_tuner.snapshot import PodView, ServerView


def remember(view: ServerView, memory: ServerMemory) -> ServerMemory:
    """Memory with the stable settings of record brought up to date with the models that exist.

    First seen: what pods come up with (the tuned ConfigMap) over what is live on the youngest ready pod, which is
    never the canary of a memory that was lost. Later: new models are added as found, models that no pod has any
    more are dropped. What is tuned says nothing of the repository's own settings: those models have no `original`,
    and so they stay tuned.
    """
    live = _youngest_live(view)
    if not live:
        return memory
    stable: dict[str, ModelSettings] = {}
    original: dict[str, ModelSettings] = {}
    for name, settings in live.items():
        known = memory.stable.get(name)
        stable[name] = known if known is not None else view.tuned.get(name, settings)
        if name in memory.original:
            original[name] = memory.original[name]
        elif name not in view.tuned:
            original[name] = settings
    if stable == dict(memory.stable) and original == dict(memory.original):
        return memory
    return replace(memory, stable=stable, original=original)


def _youngest_live(view: ServerView) -> PodSettings:
    pods = sorted((p for p in view.ready_pods if p.settings), key=lambda p: (p.started, p.name))
    return pods[-1].settings if pods else {}


def wanted(view: ServerView, memory: ServerMemory) -> dict[str, PodSettings]:
    """By ready pod, the full settings it should run."""
    change = memory.change
    found: dict[str, PodSettings] = {}
    for pod in view.ready_pods:
        settings: dict[str, ModelSettings] = dict(memory.stable)
        if change is not None:
            settings.update(change.settings if _has(pod, change) else change.before)
        found[pod.name] = {name: s for name, s in settings.items() if name in memory.stable}
    return found


def _has(pod: PodView, change: Change) -> bool:
    """Whether the pod should have the change's settings. While a change spreads, pods that start come up with them."""
    if change.phase is Phase.RESTORE:
        return False
    if pod.name in change.pods or change.phase is Phase.CONFIRM:
        return True
    return change.phase is Phase.PROMOTE and runs(pod, change.settings)


def runs(pod: PodView, settings: PodSettings) -> bool:
    """Whether the pod's live settings agree with these (models it does not have do not count)."""
    return bool(pod.settings) and all(pod.settings.get(name, want) == want for name, want in settings.items())


def moved(memory: ServerMemory) -> tuple[str, ...]:
    """Stages that run in the pool on some pod, or may again when a change in flight is undone."""
    change = memory.change
    sides = (memory.stable, change.settings, change.before) if change else (memory.stable,)
    return tuple(dict.fromkeys(m for side in sides for m, s in side.items() if s.remote is not None))


def pod_named(view: ServerView, name: str) -> PodView | None:
    return next((p for p in view.pods if p.name == name), None)


def merged(stable: Mapping[str, ModelSettings], changed: PodSettings) -> dict[str, ModelSettings]:
    return {**stable, **{k: v for k, v in changed.items() if k in stable}}


def restored(memory: ServerMemory, change: Change) -> ServerMemory:
    """Memory with the change undone: stable as before it, nothing in flight."""
    return replace(memory, stable=merged(memory.stable, change.before), change=None)
