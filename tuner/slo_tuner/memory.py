"""What must be remembered between ticks: intent and learned state, bounded and versioned.

It is written *before* the action it describes, so that after a crash the next tick finishes or
undoes what was begun. Losing it is safe: the loop starts over from what is live.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from slo_tuner.settings import ModelSettings, PodSettings


class Phase(StrEnum):
    """Where a change is: on one pod under comparison, then spreading pod by pod, then being confirmed
    against the time before it. Restore: the mode was lowered in mid-change, pods go back to `before`.
    """

    ANALYSE = "Analyse"
    PROMOTE = "Promote"
    CONFIRM = "Confirm"
    RESTORE = "Restore"


@dataclass(frozen=True, slots=True)
class Change:
    """One lever's change in flight on one server: all models it concerns, together.

    `settings` are the new settings of the changed models only; `before` those that they replace.
    `pods` have the new settings, in the order in which they got them; the first is the canary.
    `since` is when the current phase began; `looks` counts evaluations within it; `live` says that the
    canary was seen to run the settings, from `since` on.
    `baseline` are the numbers before the change (mean latency, misses, rate, …) it is held against.
    """

    id: str
    lever: str
    settings: PodSettings
    before: PodSettings
    pods: tuple[str, ...]
    phase: Phase
    since: float
    started: float
    looks: int = 0
    baseline: Mapping[str, float] = field(default_factory=dict)
    live: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """A lever's setting that was tried, under which evidence, and what it gave."""

    lever: str
    fingerprint: str
    outcome: str
    at: float
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """The pool of servers without GPUs: wanted replicas and the stages they serve, since when that many, and since
    when fewer would have done. `home_since`: since when the server could have computed the moved stages by itself.
    """

    replicas: int = 0
    stages: tuple[str, ...] = ()
    since: float = 0.0
    calm_since: float | None = None
    home_since: float | None = None


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The state of one server's loop. `original` keeps the repository's own settings, for undoing all;
    a model that was tuned already when it was first seen has none.
    """

    version: int = 1
    original: Mapping[str, ModelSettings] = field(default_factory=dict)
    stable: Mapping[str, ModelSettings] = field(default_factory=dict)
    change: Change | None = None
    replicas: int | None = None
    last_action: float = 0.0
    last_scale: float = 0.0
    calm_since: float | None = None
    reloads: tuple[float, ...] = ()
    tried: tuple[Tried, ...] = ()
    pool: PoolMemory = PoolMemory()
