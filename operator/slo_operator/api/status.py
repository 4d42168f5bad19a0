"""The status of an InferenceSLO: what was seen, what it means, what was done. Every field is in the
schema, so that the API server prunes nothing, and every list is bounded.

Figures are for reading: times are text such as 262ms, shares text such as 99.21%.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from slo_operator.api.base import ApiModel
from slo_operator.api.rules import list_map

HISTORY_LIMIT: Final = 20
MESSAGE_LIMIT: Final = 1024

#: a message is shortened rather than refused: losing a status over its length helps nobody
Message = Annotated[
    str,
    AfterValidator(lambda text: text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"),
    Field(json_schema_extra={"maxLength": MESSAGE_LIMIT}),
]
ShortText = Annotated[str, StringConstraints(max_length=256)]
#: RFC 3339 in UTC with whole seconds, as Kubernetes writes times
Time = Annotated[str, StringConstraints(max_length=32), Field(json_schema_extra={"format": "date-time"})]
Evidence = Annotated[dict[Annotated[str, StringConstraints(max_length=128)], float], Field(max_length=64)]


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes writes them: 2026-11-30T22:15:00Z."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StatusModel(ApiModel):
    """Base of status objects: reads what an older or newer release wrote."""

    model_config = ConfigDict(extra="ignore")


class ConditionType(StrEnum):
    """The conditions of a resource. Ready never depends on SLOMet."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SLO_MET = "SLOMet"
    METRICS_AVAILABLE = "MetricsAvailable"
    CAPACITY_AVAILABLE = "CapacityAvailable"
    SUSPENDED = "Suspended"
    CONTROL_EXPOSED = "ControlExposed"
    FIELD_CONTESTED = "FieldContested"
    POOL_UNAVAILABLE = "PoolUnavailable"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One condition after Kubernetes' conventions."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    status: ConditionStatus
    reason: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    message: Message = ""
    last_transition_time: Time
    """When the status last flipped."""
    observed_generation: Annotated[int, Field(ge=0)] = 0


class ModelSettingsStatus(StatusModel):
    """The settings of one model, in the serving engine's own terms."""

    model: ShortText
    instances: Annotated[int, Field(ge=0)] | None = None
    """Execution instances in one pod, all its GPUs together; requests at the same time, where a pool computes them."""
    max_batch_size: Annotated[int, Field(ge=0)] | None = None
    queue_delay: ShortText | None = None
    """Longest wait for company; absent while dynamic batching is off."""
    preferred_sizes: Annotated[list[int], Field(max_length=32)] = Field(default_factory=list)
    pool_timeout: ShortText | None = None
    """How long the pool may take for a request; absent where the server computes the model itself."""
    long_lane: ShortText | None = None
    """Which requests have replicas of the pool for themselves, such as "8192 bytes and more: 1 replica"."""
    pods: ShortText | None = None
    """Pods that run exactly this, such as 2/2."""


SettingsList = Annotated[list[ModelSettingsStatus], Field(max_length=64, json_schema_extra=list_map("model"))]


class ChangeStatus(StatusModel):
    """The tuning change in flight on a server."""

    lever: ShortText
    phase: ShortText
    since: Time
    pods: Annotated[list[ShortText], Field(max_length=256)] = Field(default_factory=list)
    """Pods with the new settings; the first is the canary."""
    settings: SettingsList = Field(default_factory=list)
    message: Message = ""
    """Samples, misses, tolerance and the verdict so far."""


class PoolStatus(StatusModel):
    """The servers without GPUs that compute stages of this server, and what that costs and gives."""

    replicas: Annotated[int, Field(ge=0)] = 0
    ready_replicas: Annotated[int, Field(ge=0)] = 0
    stages: Annotated[list[ShortText], Field(max_length=64)] = Field(default_factory=list)
    cores: Annotated[int, Field(ge=0)] = 0
    """CPU cores that its replicas hold."""
    network: ShortText | None = None
    """What a request takes beyond its time in the pool."""
    computed_locally: ShortText | None = None
    """Share of requests that the pool did not answer and that the server computed itself."""


class ServerStatus(StatusModel):
    """One server and its pods."""

    name: ShortText
    replicas: Annotated[int, Field(ge=0)] = 0
    ready_replicas: Annotated[int, Field(ge=0)] = 0
    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs that pods not yet gone hold or ask for."""
    config_hash: ShortText | None = None
    rollout: ShortText | None = None
    """Complete, Progressing, Blocked or Missing."""
    message: Message = ""
    change: ChangeStatus | None = None
    preprocess_pool: PoolStatus | None = None


class ObjectiveStatus(StatusModel):
    """One objective, judged over the SLO's window."""

    objective: ShortText
    """Such as latency.p99."""
    target: ShortText
    observed: ShortText | None = None
    attainment: ShortText | None = None
    """Share of requests within the target."""
    interval: ShortText | None = None
    """95 % bounds of the attainment, such as 98.70%–99.40%."""
    requests: Annotated[int, Field(ge=0)] | None = None
    source: ShortText | None = None
    """Where the figures come from."""
    met: ConditionStatus = ConditionStatus.UNKNOWN
    reason: ShortText | None = None
    message: Message = ""


class StageStatus(StatusModel):
    """Mean time of one stage on the critical path."""

    stage: ShortText
    """batching_delay, busy_wait, preprocess, forward, postprocess, other or unexplained."""
    model: ShortText = ""
    time: ShortText
    share: ShortText


class BreakdownStatus(StatusModel):
    """Where the mean latency goes."""

    mean: ShortText
    rate: ShortText | None = None
    """Requests per second."""
    forward_p99: ShortText | None = None
    outside_gpu: Annotated[ShortText | None, Field(alias="outsideGPU")] = None
    """p99 of the request minus p99 of the forward stage."""
    stages: Annotated[list[StageStatus], Field(max_length=32)] = Field(default_factory=list)


class BottleneckStatus(StatusModel):
    """The one thing to look at first, with its numbers."""

    reason: ShortText
    model: ShortText = ""
    message: Message = ""
    evidence: Evidence = Field(default_factory=dict)


class RecommendationStatus(StatusModel):
    """The change that the loop would make, or is making."""

    lever: ShortText
    message: Message = ""
    settings: SettingsList = Field(default_factory=list)
    replicas: Annotated[int, Field(ge=0)] | None = None
    predicted: ShortText | None = None
    """Predicted latency at the objective's quantile."""


class LeverStatus(StatusModel):
    """What the ladder says of one lever."""

    lever: ShortText
    verdict: ShortText
    """Recommended, Eligible, Ineligible or Exhausted."""
    why: Message = ""
    predicted: ShortText | None = None


class ModelStatus(StatusModel):
    """One client-facing model."""

    server: ShortText
    name: ShortText
    slo: Annotated[list[ObjectiveStatus], Field(max_length=16, json_schema_extra=list_map("objective"))] = (
        Field(default_factory=list)
    )
    breakdown: BreakdownStatus | None = None
    bottleneck: BottleneckStatus | None = None
    settings: SettingsList = Field(default_factory=list)
    recommendation: RecommendationStatus | None = None
    levers: Annotated[list[LeverStatus], Field(max_length=16)] = Field(default_factory=list)


class DecisionStatus(StatusModel):
    """One decision and why it was taken."""

    time: Time
    server: ShortText = ""
    reason: ShortText
    message: Message = ""
    lever: ShortText | None = None
    evidence: Evidence = Field(default_factory=dict)


class Summary(StatusModel):
    """The columns of `kubectl get inferenceslo`."""

    p99: ShortText | None = None
    """Observed over target of the worst model, such as 262ms/300ms."""
    bottleneck: ShortText | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None


class InferenceSLOStatus(StatusModel):
    """What is true of the resource."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    summary: Summary | None = None
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=list_map("type"))] = Field(
        default_factory=list
    )
    servers: Annotated[list[ServerStatus], Field(max_length=8, json_schema_extra=list_map("name"))] = Field(
        default_factory=list
    )
    models: Annotated[
        list[ModelStatus], Field(max_length=128, json_schema_extra=list_map("server", "name"))
    ] = Field(default_factory=list)
    last_decision: DecisionStatus | None = None
    history: Annotated[list[DecisionStatus], Field(max_length=HISTORY_LIMIT)] = Field(default_factory=list)
    """The latest decisions, newest first."""
