"""Publishes the account on Triton's own /metrics page, and is what else runs on the host.

It is a model of its own because a metric dies with its process: the models that do the work are reloaded
while the pod lives, this one is not, so the counters only grow. No request needs to go to it; one that does
gets the same numbers as JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # part of Triton

from ..account import CPU, Usage
from ..calibration import load_profile
from ..host import Host
from .instance import response

PERIOD_SECONDS = 0.25


class HostMetrics:
    """Families emulated_cpu_seconds_total, emulated_gpu_busy_seconds_total, emulated_gpu_memory_used_mib."""

    def initialize(self, args: Mapping[str, str]) -> None:
        host = Host.from_environment()
        self._gpus = host.gpus
        self._account = host.open_account(load_profile())
        if host.other_cores:
            self._account.join()
            self._account.start(CPU, host.other_cores)
        counter, gauge = pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.GAUGE
        self._families = (
            pb_utils.MetricFamily("emulated_cpu_seconds_total", "Core seconds of the emulated host", counter),
            pb_utils.MetricFamily(
                "emulated_gpu_busy_seconds_total", "Busy seconds of an emulated GPU", counter
            ),
            pb_utils.MetricFamily("emulated_gpu_memory_used_mib", "Memory taken on an emulated GPU", gauge),
        )
        cpu, busy, memory = self._families
        self._cpu = _Total(cpu.Metric(labels={}))
        self._busy = [_Total(busy.Metric(labels={"gpu": gpu})) for gpu in host.gpus]
        self._memory = [memory.Metric(labels={"gpu": gpu}) for gpu in host.gpus]
        self._publish()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_publishing, name="metrics", daemon=True)
        self._thread.start()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """STATE bytes [1] as JSON, whatever the input."""
        state = json.dumps(_as_table(self._account.usage(), self._gpus)).encode()
        return [response(STATE=np.array([state], np.object_)) for _ in requests]

    def finalize(self) -> None:
        self._done.set()
        self._thread.join()
        self._account.leave()

    def _keep_publishing(self) -> None:
        while not self._done.wait(PERIOD_SECONDS):
            self._publish()

    def _publish(self) -> None:
        usage = self._account.usage()
        self._cpu.set(usage.cpu_seconds)
        for total, seconds in zip(self._busy, usage.gpu_busy_seconds, strict=True):
            total.set(seconds)
        for metric, mib in zip(self._memory, usage.gpu_memory_mib, strict=True):
            metric.set(mib)


class _Total:
    """A counter that is told its total instead of its growth."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric
        self._total = 0.0

    def set(self, total: float) -> None:
        if total > self._total:
            self._metric.increment(total - self._total)
            self._total = total


def _as_table(usage: Usage, gpus: Sequence[str]) -> dict[str, Any]:
    return {
        "cpu_seconds": usage.cpu_seconds,
        "gpu_busy_seconds": dict(zip(gpus, usage.gpu_busy_seconds, strict=True)),
        "gpu_memory_mib": dict(zip(gpus, usage.gpu_memory_mib, strict=True)),
    }
