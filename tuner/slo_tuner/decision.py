"""The answer of a tick: what should be true from now on, why, and what was seen.

A decision is a state, not a list of commands: which settings each pod should run, how many replicas
there should be. Carrying it out twice, or after a crash, leads to the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from slo_tuner.memory import ServerMemory
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Signal
from slo_tuner.snapshot import NOT_OBSERVED


class BottleneckReason(StrEnum):
    """Where the time goes. Each is told apart by numbers."""

    PREPROCESS_STARVED = "PreprocessStarved"
    BATCHING_OFF = "BatchingOff"
    INSTANCE_SATURATED = "InstanceSaturated"
    KV_CACHE_BOUND = "KVCacheBound"
    PREFILL_BOUND = "PrefillBound"
    DECODE_BOUND = "DecodeBound"
    LOAD_IMBALANCED = "LoadImbalanced"
    NOISY_NEIGHBOUR = "NoisyNeighbour"
    REPLICAS_SHORT = "ReplicasShort"
    SLO_INFEASIBLE = "SLOInfeasible"
    UNEXPLAINED = "Unexplained"
    NONE = "None"


class SLOState(StrEnum):
    MET = "Met"
    MISSED = "Missed"
    UNDECIDED = "Undecided"
    NOT_MEASURABLE = "NotMeasurable"
    IDLE = "Idle"


class Verdict(StrEnum):
    """What the ladder says of one lever."""

    RECOMMENDED = "Recommended"
    ELIGIBLE = "Eligible"
    INELIGIBLE = "Ineligible"
    EXHAUSTED = "Exhausted"


class Reason(StrEnum):
    """Why a decision was taken; also the reason of the event that reports it."""

    SLO_MET = "SLOMet"
    NO_DATA = "NoData"
    IDLE = "Idle"
    SUSPENDED = "Suspended"
    OBSERVE_ONLY = "ObserveOnly"
    RECOMMENDED = "Recommended"
    WAITING = "Waiting"
    CANARY_STARTED = "CanaryStarted"
    CANARY_EXTENDED = "CanaryExtended"
    CANARY_RESTORED = "CanaryRestored"
    CANARY_ABANDONED = "CanaryAbandoned"
    PROMOTING = "Promoting"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    LOAD_REFUSED = "LoadRefused"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    POOL_STARTING = "PoolStarting"
    POOL_SCALED = "PoolScaled"
    POOL_GONE = "PoolGone"
    NO_CAPACITY = "NoCapacity"
    INFEASIBLE = "SLOInfeasible"
    BUDGET_SPENT = "ReloadBudgetSpent"
    LEVERS_EXHAUSTED = "LeversExhausted"


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """One objective of one client-facing model, judged over the SLO's window.

    `quantile` is None for a mean. `observed_s` is the point estimate, `attainment` the share of requests
    within the target, `interval` its 95 % bounds. None where the data does not carry an answer.
    """

    model: str
    objective: str
    target_s: float
    state: SLOState
    quantile: float | None = None
    observed_s: float | None = None
    attainment: float | None = None
    interval: tuple[float, float] | None = None
    requests: float = 0.0
    source: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class StageShare:
    """Mean time of one stage on the critical path of a request. `kind` is batching_delay, busy_wait,
    preprocess, forward, postprocess, other (computed by a model whose role is not known) or unexplained.
    `low_s` and `high_s` bound a mean that is an estimate; None where it is measured.
    """

    kind: str
    model: str
    mean_s: float
    share: float
    low_s: float | None = None
    high_s: float | None = None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the mean latency of one client-facing model goes; the stages add up to `mean_s`."""

    model: str
    rate_rps: Signal
    mean_s: float
    stages: tuple[StageShare, ...]
    forward_p99_s: float | None = None
    outside_gpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The one thing to look at first, with the numbers that say so."""

    reason: BottleneckReason
    model: str
    message: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeverAdvice:
    """The ladder's word on one lever: verdict, why, and the setting it would write."""

    lever: str
    verdict: Verdict
    why: str
    settings: PodSettings = field(default_factory=dict)
    replicas: int | None = None
    predicted_s: float | None = None
    pool_replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was seen and what it means; published in every mode."""

    objectives: tuple[ObjectiveState, ...] = ()
    breakdowns: tuple[Breakdown, ...] = ()
    bottleneck: Bottleneck | None = None
    levers: tuple[LeverAdvice, ...] = ()
    metrics_available: bool = False
    metrics_message: str = ""
    arrivals_rps: Signal = NOT_OBSERVED
    shortfall_gpus: int = 0


@dataclass(frozen=True, slots=True)
class StagePool:
    """A pool that serves these stages; no replicas: no pool."""

    replicas: int = 0
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What should be true from now on.

    settings: per pod, the settings every model that the loop owns should run with. The actuator
        compares them with the live ones and loads what differs.
    stable: what a pod that starts now must come up with (the tuned ConfigMap).
    replicas: wanted replicas; None leaves them alone.
    stage_pool: the wanted pool of servers without GPUs; None leaves it alone.
    memory: to be stored before anything is carried out.
    acted: whether this tick began or ended something (it then gets an event and a history entry).
    """

    reason: Reason
    message: str
    assessment: Assessment
    memory: ServerMemory
    evidence: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, PodSettings] = field(default_factory=dict)
    stable: PodSettings = field(default_factory=dict)
    replicas: int | None = None
    stage_pool: StagePool | None = None
    acted: bool = False
    lever: str | None = None
