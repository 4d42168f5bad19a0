"""Snapshots in a few lines: a two-pod server with one pipeline (or three), and rows with given means."""

from __future__ import annotations

from collections.abc import Mapping

from slo_tuner.objectives import Objective
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Signal, Value
from slo_tuner.snapshot import (
    BatchTime,
    EnsembleStep,
    GatewayHistogram,
    LatencyBlock,
    ModelConfig,
    ModelRow,
    Pipeline,
    PodView,
    PoolView,
    ServerView,
)

POOL = PoolView("a100", limit_gpus=4, used_gpus=4)
SETTINGS = {
    "preprocessing": ModelSettings(1, 16),
    "forward": ModelSettings(4, 16),
    "postprocessing": ModelSettings(2, 16),
    "chat": ModelSettings(1, 16),
}
STEPS = (
    EnsembleStep("preprocessing", ("PROMPT",), ("IDS",)),
    EnsembleStep("forward", ("IDS",), ("OUT",)),
    EnsembleStep("postprocessing", ("OUT",), ("TEXT",)),
)
PIPELINE = Pipeline(
    model="chat",
    preprocess=("preprocessing",),
    forward=("forward",),
    postprocess=("postprocessing",),
    objectives=(Objective("latency", 0.99, 0.3),),
    max_batch_size=16,
    max_queue_delay_us=10_000,
    max_preprocess_instances=8,
    window_s=60.0,
)


def row(
    pod: str,
    model: str,
    n: float = 1200.0,
    queue_s: float = 0.0,
    compute_s: float = 0.12,
    latency_s: float | None = None,
    batches: tuple[BatchTime, ...] = (),
    window_s: float = 60.0,
    pending: Signal = Value(0.0),  # noqa: B008 - frozen
    waited: Signal | None = None,
    quantiles: Mapping[float, float] | None = None,
    failures: float = 0.0,
) -> ModelRow:
    """A row from its means per request; what waits has waited all along, unless `waited` says otherwise."""
    total = queue_s + compute_s if latency_s is None else latency_s
    return ModelRow(
        pod, model, window_s, Value(n), Value(failures), Value(n), Value(n), Value(n * total), Value(n * queue_s),
        Value(0.0), Value(n * compute_s), Value(0.0), pending,
        pending if waited is None else waited, quantiles=quantiles or {}, batches=batches,
    )  # fmt: skip


def starved_rows(pod: str, n: float = 1200.0) -> tuple[ModelRow, ...]:
    """One 28-ms process at n/60 rps with 100 ms of queue; forward 120 ms flat."""
    return (
        row(pod, "preprocessing", n, 0.100, 0.028),
        row(pod, "forward", n, 0.010, 0.120),
        row(pod, "postprocessing", n, 0.0, 0.002),
        row(pod, "chat", n, 0.0, 0.0, latency_s=0.262),
    )


def calm_rows(pod: str, n: float = 600.0) -> tuple[ModelRow, ...]:
    return (
        row(pod, "preprocessing", n, 0.001, 0.028),
        row(pod, "forward", n, 0.004, 0.120),
        row(pod, "postprocessing", n, 0.0, 0.002),
        row(pod, "chat", n, 0.0, 0.0, latency_s=0.156),
    )


def pod(name: str, **changes: object) -> PodView:
    values: dict[str, object] = {
        "name": name,
        "ready": True,
        "terminating": False,
        "started": 0.0,
        "gpus": 2,
        "settings": SETTINGS,
        "gpu_busy": {f"{name}-0": Value(0.3), f"{name}-1": Value(0.3)},
        "gpu_memory_used_mib": {f"{name}-0": Value(36_000.0), f"{name}-1": Value(36_000.0)},
        "gpu_memory_total_mib": {f"{name}-0": Value(81_920.0), f"{name}-1": Value(81_920.0)},
        "cpu_used_cores": Value(1.0),
        "cpu_limit_cores": Value(16.0),
    }
    return PodView(**{**values, **changes})  # type: ignore[arg-type]


def configs(settings: Mapping[str, ModelSettings] = SETTINGS) -> dict[str, ModelConfig]:
    found = {
        name: ModelConfig(name, s, uses_gpu=name == "forward")
        for name, s in settings.items()
        if name != "chat"
    }
    found["chat"] = ModelConfig("chat", settings["chat"], steps=STEPS)
    return found


def histogram(within: float, total: float, target_s: float = 0.3) -> GatewayHistogram:
    """`within` of `total` under the target, the rest under twice the target."""
    buckets = ((target_s / 2, within / 2), (target_s, within), (2 * target_s, total), (float("inf"), total))
    return GatewayHistogram("chat", 60.0, buckets, 0.0, "gateway histogram")


def block(
    pod_name: str, start: float, mean_s: float, misses: float | None, n: float = 200.0, failures: float = 0.0
) -> LatencyBlock:
    return LatencyBlock(pod_name, "chat", start, 10.0, n, n * mean_s, failures, misses)


def server(**changes: object) -> ServerView:
    """Two ready pods with two GPUs each; pass any field of ServerView to change it."""
    values: dict[str, object] = {
        "namespace": "serving",
        "resource": "assistant",
        "name": "chat",
        "pool": "a100",
        "gpus_per_replica": 2,
        "min_replicas": 1,
        "max_replicas": 4,
        "desired_replicas": 2,
        "managed": True,
        "pods": (pod("a"), pod("b")),
        "models": configs(),
        "pipelines": (PIPELINE,),
        "rows": (*starved_rows("a"), *starved_rows("b")),
        "gateway": (histogram(2000, 2400),),
        "arrivals_rps": {"chat": Value(40.0)},
    }
    return ServerView(**{**values, **changes})  # type: ignore[arg-type]
