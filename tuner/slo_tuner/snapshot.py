"""What the operator saw: one frozen picture of a server per tick.

Times are seconds, memory is MiB, timestamps are seconds since the epoch. Everything the decision
needs is here; whoever fills it (operator, simulator, a recorded file) decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slo_tuner.objectives import Objective
from slo_tuner.settings import ModelSettings, PodSettings
from slo_tuner.signal import Signal, Unknown

NOT_OBSERVED = Unknown("not observed")


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Executions of one batch size within the window and their mean compute time (per execution)."""

    size: int
    executions: int
    mean_s: float


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Counter increases of one model on one pod over `window_s`.

    The `*_s` sums are summed seconds over all requests: Triton adds compute time once per *request*,
    so compute_infer_s / requests is the request-weighted time of a batch.
    `quantiles` holds the server's own summary of request latency, level → seconds (last 60 s).
    `computed` counts the requests that were computed, not answered from the response cache; leave it
    out when the model has no cache. `waited` is the least number of requests that was seen waiting at
    any moment of the window, where `pending` is what waits now.
    """

    pod: str
    model: str
    window_s: float
    requests: Signal
    failures: Signal
    executions: Signal
    inferences: Signal
    request_s: Signal
    queue_s: Signal
    compute_input_s: Signal
    compute_infer_s: Signal
    compute_output_s: Signal
    pending: Signal = NOT_OBSERVED
    waited: Signal = NOT_OBSERVED
    computed: Signal = NOT_OBSERVED
    quantiles: Mapping[float, float] = field(default_factory=dict)
    compute_quantiles: Mapping[float, float] = field(default_factory=dict)
    batches: tuple[BatchTime, ...] = ()


@dataclass(frozen=True, slots=True)
class StageTime:
    """One member's share of one traced request: waiting for an instance, then being computed."""

    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request as the server itself traced it, from receipt to the last byte sent."""

    pod: str
    model: str
    start: float
    latency_s: float
    stages: Mapping[str, StageTime]


@dataclass(frozen=True, slots=True)
class LatencyBlock:
    """What one pod answered for one client-facing model in a short block of time.

    `misses` counts requests over the SLO's target and is None where only means are known. `stage_sums_s`
    is, per member of the pipeline, the time that these requests waited for it and were computed by it, all
    requests together; empty where the stages are not known.
    """

    pod: str
    model: str
    start: float
    seconds: float
    requests: float
    latency_sum_s: float
    failures: float = 0.0
    misses: float | None = None
    stage_sums_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayHistogram:
    """A client-side latency histogram of one model over `window_s`, all pods together.

    `buckets` are cumulative (upper bound in seconds, increase), ascending, +Inf last.
    """

    model: str
    window_s: float
    buckets: tuple[tuple[float, float], ...]
    failures: float
    source: str
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One member of an ensemble; `inputs` and `outputs` are names of the ensemble's tensors."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's configuration as read back from a live server; `settings_known` is False where only the structure
    is known, and `settings` then say nothing.
    """

    name: str
    settings: ModelSettings
    steps: tuple[EnsembleStep, ...] = ()
    uses_gpu: bool = False
    decoupled: bool = False
    sequence_batching: bool = False
    settings_known: bool = True

    @property
    def is_ensemble(self) -> bool:
        return bool(self.steps)


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of the server: state, live settings per model, host and GPU use.

    `settings` is empty while the pod cannot be asked. `gpu_busy` maps a GPU's UUID to the share of
    time its graphics engine was active; memory is MiB per GPU.
    """

    name: str
    ready: bool
    terminating: bool
    started: float
    node: str = ""
    gpus: int = 0
    settings: PodSettings = field(default_factory=dict)
    gpu_busy: Mapping[str, Signal] = field(default_factory=dict)
    gpu_memory_used_mib: Mapping[str, Signal] = field(default_factory=dict)
    gpu_memory_total_mib: Mapping[str, Signal] = field(default_factory=dict)
    cpu_used_cores: Signal = NOT_OBSERVED
    cpu_limit_cores: Signal = NOT_OBSERVED
    cpu_throttled_share: Signal = NOT_OBSERVED


@dataclass(frozen=True, slots=True)
class Refusal:
    """A load that a server refused since the last tick; the old configuration keeps serving."""

    pod: str
    model: str
    wanted: ModelSettings
    message: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One client-facing model: its stages by role, its objectives and how far levers may go."""

    model: str
    preprocess: tuple[str, ...]
    forward: tuple[str, ...]
    postprocess: tuple[str, ...]
    objectives: tuple[Objective, ...]
    max_batch_size: int
    max_queue_delay_us: int
    max_preprocess_instances: int
    min_batch_size: int = 1
    window_s: float = 300.0
    throughput_rps: float = 0.0


@dataclass(frozen=True, slots=True)
class SizeView:
    """Requests that a pool answered within the window, below `below_bytes` and not below half of it (inf: all larger
    ones): their number, and the mean time from sending one to its answer; `alone_s` of those for which nothing else of
    their server waited at the member, None where they are too few.
    """

    below_bytes: float
    requests: float
    mean_s: float
    alone_s: float | None


@dataclass(frozen=True, slots=True)
class StagePoolView:
    """Servers without GPUs that stages of this server may be moved to: what is declared, and what is seen of it.

    `replicas` are wanted now, `ready` of them answer for `stages`; each runs `processes` of a stage. `service_s` is
    the compute time of a request inside the pool by stage; `network_s` what a forwarded request takes beyond its time
    in the pool; `local_share` the share of forwarded requests that the pool did not answer and that were computed in
    the server; `sizes` by stage, small requests first.
    """

    max_replicas: int
    processes: int
    replicas: int = 0
    ready: int = 0
    stages: tuple[str, ...] = ()
    service_s: Mapping[str, float] = field(default_factory=dict)
    network_s: Signal = NOT_OBSERVED
    local_share: Signal = NOT_OBSERVED
    sizes: Mapping[str, tuple[SizeView, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server (a Deployment of identical pods) and everything measured about it.

    `blocks` and `traces` should reach back ten minutes: the time before a change is what it is held
    against. `tuned` is what pods come up with now (the tuned ConfigMap), empty when there is none. `stage_pool` is
    None where none is declared.
    """

    namespace: str
    resource: str
    name: str
    pool: str
    gpus_per_replica: int
    min_replicas: int
    max_replicas: int
    desired_replicas: int
    managed: bool
    pods: tuple[PodView, ...]
    models: Mapping[str, ModelConfig]
    pipelines: tuple[Pipeline, ...]
    rows: tuple[ModelRow, ...] = ()
    traces: tuple[RequestTrace, ...] = ()
    blocks: tuple[LatencyBlock, ...] = ()
    gateway: tuple[GatewayHistogram, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    arrivals_rps: Mapping[str, Signal] = field(default_factory=dict)
    mig_allowed: bool = False
    tuned: PodSettings = field(default_factory=dict)
    stage_pool: StagePoolView | None = None
    _by_model: Mapping[str, tuple[ModelRow, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Rows by model: servers with thousands of models are looked at model by model."""
        found: dict[str, list[ModelRow]] = {}
        for row in self.rows:
            found.setdefault(row.model, []).append(row)
        object.__setattr__(self, "_by_model", {model: tuple(rows) for model, rows in found.items()})

    def rows_of(self, model: str) -> tuple[ModelRow, ...]:
        """The model's rows, one of each pod that has one."""
        return self._by_model.get(model, ())

    @property
    def ready_pods(self) -> tuple[PodView, ...]:
        return tuple(p for p in self.pods if p.ready and not p.terminating)


@dataclass(frozen=True, slots=True)
class PoolView:
    """GPUs of one physical pool: the limit, and what all pods on it hold or ask for right now."""

    name: str
    limit_gpus: int
    used_gpus: int

    @property
    def free_gpus(self) -> int:
        return max(0, self.limit_gpus - self.used_gpus)
