"""What exporters say of a pod's host and GPUs, as signals; what they do not say is unknown, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slo_operator.api.names import CONTAINER
from slo_operator.observe.measured import Measurements, PodField, PodKey
from slo_tuner.signal import Signal, Unknown, Value

_CPU: Final = "container_cpu_usage_seconds_total"
_THROTTLED: Final = "container_cpu_cfs_throttled_periods_total"


@dataclass(frozen=True, slots=True)
class HostSignals:
    """Of one pod. GPU's UUID → share of time with an active engine, memory in MiB; CPU in cores, throttled periods as
    a share of all."""

    gpu_busy: Mapping[str, Signal]
    gpu_memory_used_mib: Mapping[str, Signal]
    gpu_memory_total_mib: Mapping[str, Signal]
    cpu_used_cores: Signal
    cpu_throttled_share: Signal


def host_signals(measured: Measurements, pod: PodKey) -> HostSignals:
    """What was measured of that pod."""
    fields = measured.pods.get(pod, {})
    used, free = fields.get(PodField.GPU_MEMORY_USED, {}), fields.get(PodField.GPU_MEMORY_FREE, {})
    return HostSignals(
        gpu_busy={
            gpu: Value(v, source="DCGM GR_ENGINE_ACTIVE")
            for gpu, v in fields.get(PodField.GPU_BUSY, {}).items()
        },
        gpu_memory_used_mib={gpu: Value(v, source="DCGM FB_USED") for gpu, v in used.items()},
        gpu_memory_total_mib={
            gpu: Value(v + used[gpu], source="DCGM FB_USED + FB_FREE")
            for gpu, v in free.items()
            if gpu in used
        },
        cpu_used_cores=_cpu_used(measured, fields.get(PodField.CPU_CORES, {})),
        cpu_throttled_share=_throttled(measured, fields.get(PodField.CPU_THROTTLED, {})),
    )


def of_server(by_container: Mapping[str, float]) -> float:
    """That of the serving container where one has its name, else of all of the pod's together."""
    return by_container.get(CONTAINER, sum(by_container.values()))


def _cpu_used(measured: Measurements, by_container: Mapping[str, float]) -> Signal:
    if not by_container:
        return Unknown(_why(measured, PodField.CPU_CORES, _CPU))
    return Value(of_server(by_container), source=_CPU)


def _throttled(measured: Measurements, shares: Mapping[str, float]) -> Signal:
    if not shares:
        return Unknown(_why(measured, PodField.CPU_THROTTLED, _THROTTLED))
    return Value(min(1.0, max(shares.values())), source=_THROTTLED)


def _why(measured: Measurements, field: PodField, family: str) -> str:
    return measured.failure or measured.failed.get(field.value) or f"{family} has no series for this pod"
