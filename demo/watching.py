"""Looking at the run while it runs: status, pods, metrics and requests become samples and decisions."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import aiohttp

from demo.gateway_client import GatewayClient
from demo.goals import latency_ms, quantile_ms
from demo.kube import JSON, Kube, Prometheus
from demo.metrics import (
    CPU_QUERY,
    GPU_QUERY,
    TRITON_QUERY,
    Counters,
    counters,
    forward_quantile_ms,
    stage_means_ms,
)
from demo.run_data import Decision, Sample
from devcluster.gateway.records import Record
from slo_operator.api.status import InferenceSLOStatus, ModelSettingsStatus
from slo_operator.cli.words import seconds_of

EVERY_S = 5.0
LOOK_BACK_S = 20.0
GONE = ("Succeeded", "Failed")
_TROUBLE = (aiohttp.ClientError, TimeoutError, OSError)


class Watcher:
    """Keeps what was seen so far; `keep_watching` is the task that looks."""

    def __init__(
        self, kube: Kube, prometheus: Prometheus, gateway: GatewayClient, namespace: str, resource: str
    ) -> None:
        self._kube, self._prometheus, self._gateway = kube, prometheus, gateway
        self._namespace, self._resource = namespace, resource
        self._counters: deque[tuple[float, Counters]] = deque(maxlen=int(LOOK_BACK_S / EVERY_S) + 1)
        self._mig_labels: dict[str, tuple[tuple[str, str], ...]] = {}
        self._decisions: dict[tuple[str, str, str], Decision] = {}
        self.phase = "starting"
        self.samples: list[Sample] = []
        self.bottlenecks: list[tuple[float, str]] = []
        self.status = InferenceSLOStatus()
        self.mig_changes = 0
        self.troubles: list[str] = []

    @property
    def decisions(self) -> list[Decision]:
        """Decisions of the resource's history so far, oldest first; kept beyond its 20 entries."""
        return sorted(self._decisions.values(), key=lambda decision: decision.time)

    @property
    def last_decision_at(self) -> float:
        """Unix time of the newest decision, 0 before the first."""
        return max((decision.time for decision in self._decisions.values()), default=0.0)

    @property
    def changing(self) -> bool:
        """Whether a tuning change is in flight."""
        return any(server.change is not None for server in self.status.servers)

    async def keep_watching(self) -> None:
        """Look every second at requests and status, every 5 s at everything; for ever."""
        due = time.monotonic()
        while True:
            await self._try(self._gateway.fetch)
            await self._try(self._look_at_status)
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY_S
                await self._try(self._sample)
            await asyncio.sleep(1.0)

    async def _try(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await look()
        except _TROUBLE as error:
            self.troubles.append(f"{time.time():.0f} {look.__name__}: {type(error).__name__} {error}")

    async def _look_at_status(self) -> None:
        group = "/apis/inferenceslo.dev/v1alpha1"
        found = await self._kube.get(f"{group}/namespaces/{self._namespace}/inferenceslos/{self._resource}")
        self.status = InferenceSLOStatus.model_validate((found or {}).get("status") or {})
        for entry in reversed(self.status.history):  # newest first there
            when = datetime.fromisoformat(entry.time).timestamp()
            decision = Decision(when, entry.reason, entry.message, entry.server, entry.lever)
            self._decisions.setdefault((entry.time, entry.reason, entry.message), decision)
        reason = bottleneck(self.status)
        if reason and (not self.bottlenecks or self.bottlenecks[-1][1] != reason):
            self.bottlenecks.append((time.time(), reason))

    async def _sample(self) -> None:
        now = time.time()
        series = await self._prometheus.query(TRITON_QUERY.format(namespace=self._namespace))
        gpu = await self._prometheus.query(GPU_QUERY.format(namespace=self._namespace))
        cpu = await self._prometheus.query(CPU_QUERY.format(namespace=self._namespace))
        pool = next((s.preprocess_pool for s in self.status.servers if s.preprocess_pool), None)
        network = seconds_of(pool.network) if pool else None
        pods = await self._kube.items(f"/api/v1/namespaces/{self._namespace}/pods")
        self._count_mig(await self._kube.items("/api/v1/nodes"))
        recent = recent_records(self._gateway.records, now - LOOK_BACK_S)
        self._counters.append((now, counters(series)))
        before, after = self._counters[0][1], self._counters[-1][1]
        mean = sum(map(latency_ms, recent)) / len(recent) if recent else None
        self.samples.append(
            Sample(
                time=now,
                phase=self.phase,
                rate_rps=len(recent) / LOOK_BACK_S,
                p99_20s_ms=quantile_ms(recent, 0.99),
                p99_60s_ms=quantile_ms(recent_records(self._gateway.records, now - 60), 0.99),
                stages_ms=stage_means_ms(before, after, mean) if len(self._counters) > 1 else {},
                forward_p50_ms=forward_quantile_ms(series, "0.5"),
                forward_p99_ms=forward_quantile_ms(series, "0.99"),
                gpu_busy=gpu[0].value if gpu else None,
                gpus=sum(map(gpus_requested, pods)),
                cpu=cpu[0].value if cpu else None,
                pool_replicas=pool.ready_replicas if pool else 0,
                pool_network_ms=None if network is None else 1000 * network,
                bottleneck=bottleneck(self.status),
                settings=settings_text(self.status),
            )
        )

    def _count_mig(self, nodes: Sequence[JSON]) -> None:
        for node in nodes:
            name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
            now = tuple(
                sorted(item for item in labels.items() if item[0].startswith("nvidia.com/mig.config"))
            )
            if self._mig_labels.setdefault(name, now) != now:
                self._mig_labels[name] = now
                self.mig_changes += 1


def recent_records(records: Sequence[Record], since: float) -> list[Record]:
    """Requests that were scheduled since a time; looks from the end, where the latest are."""
    found = []
    for record in reversed(records):
        if record.scheduled >= since:
            found.append(record)
        elif record.scheduled < since - 15:  # none ends later than its time limit of 10 s
            break
    return found


def bottleneck(status: InferenceSLOStatus) -> str:
    """The worst model's bottleneck, or the first model's that has one."""
    if status.summary and status.summary.bottleneck:
        return status.summary.bottleneck
    reasons = [model.bottleneck.reason for model in status.models if model.bottleneck]
    return next((reason for reason in reasons if reason != "None"), reasons[0] if reasons else "")


def settings_text(status: InferenceSLOStatus) -> str:
    """The settings of the first model's pipeline and of every forward model, one after the other."""
    seen: dict[str, str] = {}
    for model in status.models:
        for one in model.settings:
            seen.setdefault(one.model, _one_setting(one))
    return "; ".join(f"{name} {text}" for name, text in sorted(seen.items()) if text)


def _one_setting(one: ModelSettingsStatus) -> str:
    parts = [f"×{one.instances}"] if one.instances else []
    if one.queue_delay:
        parts.append(f"batches ≤ {one.max_batch_size} after {one.queue_delay}")
    return " ".join(parts)


def gpus_requested(pod: JSON) -> int:
    """Whole GPUs that a pod holds or waits for; 0 once it has ended."""
    if pod.get("status", {}).get("phase") in GONE:
        return 0
    found = 0
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        asked = {**resources.get("limits", {}), **resources.get("requests", {})}
        found += sum(int(count) for name, count in asked.items() if name == "nvidia.com/gpu")
    return found
