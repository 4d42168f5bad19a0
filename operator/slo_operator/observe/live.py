"""What the pods themselves say: live configurations, kept for a minute, and statistics at every tick."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slo_operator.api.names import GRPC_PORT
from slo_operator.observe.measured import PodKey
from slo_operator.observe.records import PodRecord
from slo_operator.observe.triton import BatchStat, ConfigProto, Statistics, Triton, TritonError
from slo_operator.render.model_config import model_of
from slo_tuner.settings import PodSettings
from slo_tuner.snapshot import BatchTime, ModelConfig

CONFIG_TTL_S = 60.0
STATS_HISTORY_S = 240.0

#: pod, address, key → client
Connect = Callable[[str, str, str], Triton]


@dataclass(frozen=True, slots=True)
class LivePod:
    """One pod's answer. `error` says why the rest is old or empty; `tracing` is None when unread."""

    configs: Mapping[str, ConfigProto] = field(default_factory=dict)
    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    batches: Mapping[str, tuple[tuple[BatchTime, ...], float]] = field(default_factory=dict)
    tracing: Mapping[str, list[str]] | None = None
    error: str = ""

    @property
    def settings(self) -> PodSettings:
        return {name: config.settings for name, config in self.models.items()}


@dataclass(slots=True)
class _Cached:
    """What is kept of one pod between ticks; thrown away when its container starts anew."""

    identity: tuple[str, float, int, str]
    client: Triton
    gpus: int
    configs: dict[str, ConfigProto] = field(default_factory=dict)
    tracing: dict[str, list[str]] | None = None
    read_at: float = float("-inf")
    stats: deque[tuple[float, Statistics]] = field(default_factory=deque)


class LiveReader:
    """Asks pods side by side, every call with a deadline; one pod's silence never holds up the others."""

    def __init__(self, connect: Connect, workers: ThreadPoolExecutor):
        self._connect = connect
        self._workers = workers
        self._lock = threading.Lock()
        self._cached: dict[PodKey, _Cached] = {}

    def read(
        self, pods: Iterable[tuple[PodRecord, str]], now: float, alive: Collection[PodKey]
    ) -> dict[PodKey, LivePod]:
        """(pod, control key) → what it said. Pods without an address or not running are left out.

        alive: all pods of the cluster. One that is not asked this time may be in the hands of an actor,
        so its client is closed only when the pod is gone.
        """
        wanted = {p.meta.key: (p, key) for p, key in pods if p.ip and p.started}
        self._forget(alive)
        futures = {
            key: self._workers.submit(self._read, self._entry(pod, secret), now)
            for key, (pod, secret) in wanted.items()
        }
        return {key: future.result() for key, future in futures.items()}

    def client(self, pod: PodKey) -> Triton | None:
        """The pod's open client, None for a pod that was not read in the latest tick."""
        with self._lock:
            entry = self._cached.get(pod)
            return entry.client if entry else None

    def invalidate(self, pod: PodKey) -> None:
        """Read this pod's configuration again at the next tick: something was changed there."""
        with self._lock:
            if pod in self._cached:
                self._cached[pod].read_at = float("-inf")

    def close(self) -> None:
        self._forget(())

    def _entry(self, pod: PodRecord, secret: str) -> _Cached:
        identity = (pod.meta.uid, pod.started, pod.restarts, secret)
        with self._lock:
            entry = self._cached.get(pod.meta.key)
            if entry is None or entry.identity != identity:
                if entry is not None:
                    entry.client.close()
                client = self._connect(pod.meta.name, f"{pod.ip}:{GRPC_PORT}", secret)
                entry = self._cached[pod.meta.key] = _Cached(identity, client, pod.gpus)
            return entry

    def _forget(self, alive: Collection[PodKey]) -> None:
        with self._lock:
            for key in [k for k in self._cached if k not in alive]:
                self._cached.pop(key).client.close()

    def _read(self, entry: _Cached, now: float) -> LivePod:
        error = ""
        try:
            entry.stats.append((now, entry.client.statistics()))
            while entry.stats[0][0] < now - STATS_HISTORY_S:
                entry.stats.popleft()
            if now - entry.read_at >= CONFIG_TTL_S:
                entry.configs = {name: entry.client.config(name) for name in entry.client.models()}
                entry.tracing = entry.client.trace_settings()
                entry.read_at = now
        except TritonError as failure:
            error = str(failure)
        models = {name: model_of(config, entry.gpus) for name, config in entry.configs.items()}
        batches = {name: batch_times(entry.stats, name) for name in models}
        return LivePod(dict(entry.configs), models, batches, entry.tracing, error)


def batch_times(history: deque[tuple[float, Statistics]], model: str) -> tuple[tuple[BatchTime, ...], float]:
    """Executions by batch size between the oldest and newest statistics, and the seconds between them.

    A full reload starts the server's statistics from 0: only what came after it counts.
    """
    newest_at, newest = history[-1] if history else (0.0, {})
    sizes = newest.get(model, {})
    base_at, base = newest_at, sizes
    for at, statistics in reversed(history):
        earlier = statistics.get(model, {})
        if any(
            stat.executions > base.get(size, BatchStat(0, 0.0)).executions for size, stat in earlier.items()
        ):
            break
        base_at, base = at, earlier
    out = []
    for size, stat in sorted(sizes.items()):
        before = base.get(size, BatchStat(0, 0.0))
        executions = stat.executions - before.executions
        if executions > 0:
            out.append(BatchTime(size, executions, (stat.total_s - before.total_s) / executions))
    return tuple(out), newest_at - base_at
