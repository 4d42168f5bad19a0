"""A model that clients call: its stages, its objectives, and how far levers may go."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, StrictInt, model_validator

from slo_operator.api.base import ApiModel, ModelName, PositiveInt
from slo_operator.api.rules import Rule, validations
from slo_operator.api.types import DURATION_PATTERN, Duration, Percentage, PositiveDuration

_Members = Annotated[
    list[ModelName], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
]
_QUANTILES = ("p50", "p90", "p95", "p99")
_ORDER = "higher quantiles must not be below lower ones: p50 ≤ p90 ≤ p95 ≤ p99"
_ANY = "at least one of p50, p90, p95, p99, mean"
_ONE_ROLE = "a model has one role: it stands in one of preprocess, forward, postprocess"


class Stages(ApiModel):
    """Members of the pipeline by role; what is not named is found out from the ensemble."""

    preprocess: _Members = Field(default_factory=list)
    forward: _Members = Field(default_factory=list)
    postprocess: _Members = Field(default_factory=list)

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "!(has(self.preprocess) && has(self.forward) && self.preprocess.exists(m, m in self.forward))"
                " && !(has(self.preprocess) && has(self.postprocess)"
                " && self.preprocess.exists(m, m in self.postprocess))"
                " && !(has(self.forward) && has(self.postprocess)"
                " && self.forward.exists(m, m in self.postprocess))",
                _ONE_ROLE,
            )
        )
    )

    @model_validator(mode="after")
    def _one_role(self) -> Self:
        members = [*self.preprocess, *self.forward, *self.postprocess]
        if len(set(members)) < len(members):
            raise ValueError(_ONE_ROLE)
        return self


class Latency(ApiModel):
    """Targets of the whole request, from receipt to the last byte, by quantile."""

    p50: PositiveDuration | None = None
    p90: PositiveDuration | None = None
    p95: PositiveDuration | None = None
    p99: PositiveDuration | None = None
    mean: PositiveDuration | None = None

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule("has(self.p50) || has(self.p90) || has(self.p95) || has(self.p99) || has(self.mean)", _ANY),
            Rule(
                "("
                + " + ".join(
                    f"(has(self.{q}) && self.{q}.matches('{DURATION_PATTERN}') ? [duration(self.{q})] : [])"
                    for q in _QUANTILES
                )
                + ").isSorted()",
                _ORDER,
            ),
        )
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        targets = [d.microseconds for d in (self.p50, self.p90, self.p95, self.p99) if d is not None]
        if not targets and self.mean is None:
            raise ValueError(_ANY)
        if targets != sorted(targets):
            raise ValueError(_ORDER)
        return self


class SLO(ApiModel):
    """What is promised to clients of the model."""

    latency: Latency
    availability: Percentage | None = None
    """Share of requests that must be answered; failures count as misses of every objective."""
    throughput: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Requests per second for which capacity is kept, whatever the traffic of the moment."""
    window: PositiveDuration = PositiveDuration("5m")
    """Time over which the objectives are judged; at least 10s."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                f"!self.window.matches('{DURATION_PATTERN}') || duration(self.window) >= duration('10s')",
                "slo.window must be at least 10s",
                field=".window",
            )
        )
    )

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.window.seconds < 10:
            raise ValueError(f"slo.window must be at least 10s (got {self.window})")
        return self


class BatchSize(ApiModel):
    """Bounds of the largest batch, in items."""

    min: PositiveInt = 1
    max: PositiveInt = 128

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule("self.min <= self.max", "batchSize.min must not be above batchSize.max", field=".min")
        )
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"batchSize.min must not be above batchSize.max (got {self.min} and {self.max})")
        return self


class QueueDelay(ApiModel):
    """How long a request may wait for company."""

    max: Duration = Duration("10ms")


class PreprocessInstances(ApiModel):
    """Processes of each preprocessing member in one pod."""

    max: Annotated[StrictInt, Field(ge=1, le=256)] = 8


class Limits(ApiModel):
    """How far levers may go."""

    batch_size: BatchSize = BatchSize()
    queue_delay: QueueDelay = QueueDelay()
    preprocess_instances: PreprocessInstances = PreprocessInstances()


class ServedModel(ApiModel):
    """One client-facing model."""

    name: ModelName
    """Name that clients call."""
    stages: Stages | None = None
    slo: SLO
    limits: Limits = Limits()
