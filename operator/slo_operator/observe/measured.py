"""What was measured in one tick, whoever asked: Prometheus, or somebody who saved two metrics pages.

Plain values; loading this loads no client of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slo_operator.config import GatewayHistogramConfig
    from slo_operator.observe.gateway import Gateway
    from slo_operator.observe.prometheus import RawSeries

#: (namespace, pod)
PodKey = tuple[str, str]
#: (namespace, pod, model)
RowKey = tuple[str, str, str]

MIN_SAMPLES = 4


class Field(StrEnum):
    """What a model row's family fills."""

    REQUESTS = "requests"
    FAILURES = "failures"
    EXECUTIONS = "executions"
    INFERENCES = "inferences"
    REQUEST_US = "request_us"
    QUEUE_US = "queue_us"
    COMPUTE_INPUT_US = "compute_input_us"
    COMPUTE_INFER_US = "compute_infer_us"
    COMPUTE_OUTPUT_US = "compute_output_us"
    SUMMARY_COUNT = "summary_count"
    PENDING = "pending"
    PENDING_GROWTH = "pending_growth"
    PENDING_LEAST = "pending_least"


class PodField(StrEnum):
    """What a family fills for a whole pod or one of its GPUs."""

    CPU_CORES = "cpu_cores"
    CPU_THROTTLED = "cpu_throttled"
    GPU_BUSY = "gpu_busy"
    GPU_MEMORY_USED = "gpu_memory_used"
    GPU_MEMORY_FREE = "gpu_memory_free"


#: Triton core's families (metrics guide; names checked on 2.51): counters of a model's row
COUNTERS: Mapping[Field, str] = {
    Field.REQUESTS: "nv_inference_request_success",
    Field.FAILURES: "nv_inference_request_failure",
    Field.EXECUTIONS: "nv_inference_exec_count",
    Field.INFERENCES: "nv_inference_count",
    Field.REQUEST_US: "nv_inference_request_duration_us",
    Field.QUEUE_US: "nv_inference_queue_duration_us",
    Field.COMPUTE_INPUT_US: "nv_inference_compute_input_duration_us",
    Field.COMPUTE_INFER_US: "nv_inference_compute_infer_duration_us",
    Field.COMPUTE_OUTPUT_US: "nv_inference_compute_output_duration_us",
    Field.SUMMARY_COUNT: "nv_inference_request_summary_us_count",
}
PENDING = "nv_inference_pending_request_count"
#: the server's own quantiles over the last 60 s
REQUEST_SUMMARY = "nv_inference_request_summary_us"
COMPUTE_SUMMARY = "nv_inference_compute_infer_summary_us"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well a pod's scrapes cover the rate window.

    window_s: the time that `increase` stands for on this pod (its extrapolation undone).
    """

    interval_s: float
    window_s: float
    age_s: float
    samples: int

    @property
    def problem(self) -> str | None:
        """Why rates of this pod must not be used; None when they may."""
        if self.samples < MIN_SAMPLES:
            return f"only {self.samples} samples in the window, {MIN_SAMPLES} are needed"
        if self.age_s > max(3 * self.interval_s, 15.0):
            return f"the last sample is {self.age_s:.0f} s old"
        return None


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Requests of a moved stage on one pod within the window: answered by the pool, and computed in the pod after all;
    and the seconds that the pool's answers took. `by_size`: answers and their seconds by the bytes that the request
    stayed below, and whether it found an idle member."""

    answered: float = 0.0
    local: float = 0.0
    seconds: float = 0.0
    by_size: Mapping[tuple[float, bool], tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything that was said in one tick; `failure` when nothing was. `row_problems`: why a row cannot be had."""

    at: float
    window_s: float
    failure: str | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[RowKey, Mapping[Field, float]] = field(default_factory=dict)
    row_problems: Mapping[RowKey, str] = field(default_factory=dict)
    coverage: Mapping[PodKey, Coverage] = field(default_factory=dict)
    quantiles: Mapping[RowKey, Mapping[float, float]] = field(default_factory=dict)
    compute_quantiles: Mapping[RowKey, Mapping[float, float]] = field(default_factory=dict)
    pods: Mapping[PodKey, Mapping[PodField, Mapping[str, float]]] = field(default_factory=dict)
    gateways: tuple[Gateway, ...] = ()
    forwarded: Mapping[RowKey, Forwarded] = field(default_factory=dict)
    blocks: tuple[RawSeries, ...] = ()
    misses: tuple[tuple[GatewayHistogramConfig, list[RawSeries]], ...] = ()
