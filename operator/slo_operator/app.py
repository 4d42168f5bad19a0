"""The operator put together: every part made once, from the configuration."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slo_operator.act.apply import Applier
from slo_operator.act.carry_out import Actor
from slo_operator.act.children import ControlKeys
from slo_operator.act.control import Controller
from slo_operator.act.events import EventRecorder
from slo_operator.config import OperatorConfig
from slo_operator.health import Health, HealthServer, Metrics
from slo_operator.kube import Kube
from slo_operator.loop import Body, Loop, Parts
from slo_operator.observe.cluster import Cluster
from slo_operator.observe.live import Connect, LiveReader
from slo_operator.observe.observer import Observer
from slo_operator.observe.prometheus import Prometheus, Querier
from slo_operator.observe.receiver import TraceReceiver
from slo_operator.observe.traces import TraceBuffer
from slo_operator.observe.triton import TritonClient
from slo_operator.plan import Decide, Planner
from slo_operator.publish import Publisher
from slo_operator.state import MemoryStore
from slo_tuner.decide import decide

log = logging.getLogger(__name__)

Clock = Callable[[], float]

#: twice this is well within the pod's grace period
STOP_S = 10.0


@dataclass(slots=True)
class Outside:
    """Everything beyond the process; tests bring their own."""

    kube: Kube
    querier: Querier
    connect: Connect = TritonClient
    decide: Decide = decide
    clock: Clock = time.time
    instance: str = "inferenceslo-operator"

    @classmethod
    def real(cls, kube: Kube, config: OperatorConfig, instance: str) -> Outside:
        """The cluster that `kube` talks to, and the configured Prometheus."""
        p = config.prometheus
        return cls(kube, Prometheus(p.url, p.timeout, p.bearer_token_file), instance=instance)


class Operator:
    """Owns threads and sockets. `resources` gives the InferenceSLOs' bodies, None before all are known."""

    def __init__(
        self,
        config: OperatorConfig,
        outside: Outside,
        resources: Callable[[], Sequence[Body] | None],
        deaf: Callable[[], Sequence[str]] = lambda: (),
    ):
        clock, kube = outside.clock, outside.kube
        self._config = config
        self._stop = threading.Event()
        self._readers = ThreadPoolExecutor(16, thread_name_prefix="read")
        self._actors = ThreadPoolExecutor(16, thread_name_prefix="act")
        self.cluster = Cluster(kube, self._wake, clock)
        self.traces = TraceBuffer(config.traces.max_requests)
        self.events = EventRecorder(kube, clock, outside.instance)
        self.applier = Applier(kube, self.cluster, self.events, clock)
        self.reader = LiveReader(outside.connect, self._readers)
        self.metrics = Metrics()
        self.health = Health(config.interval, clock, lambda: [*self.cluster.deaf(), *deaf()])
        keys = ControlKeys(kube, clock)
        memory = MemoryStore(self.cluster, self.applier)
        self.publisher = Publisher(kube, clock)
        parts = Parts(
            cluster=self.cluster,
            observer=Observer(
                outside.querier, self.reader, self.traces, config.gateway_histograms, self._readers, clock
            ),
            planner=Planner(outside.decide, kube, self.cluster, keys, memory, self.applier, config, clock),
            actor=Actor(
                self.applier,
                keys,
                memory,
                Controller(self.reader, clock),
                self.reader,
                self.events,
                config.traces,
            ),
            publisher=self.publisher,
            health=self.health,
            metrics=self.metrics,
        )
        self.loop = Loop(parts, resources, config.interval, clock, self._actors)
        self._looping = threading.Thread(target=self.loop.run, args=(self._stop,), name="loop", daemon=True)
        self._servers: list[HealthServer | TraceReceiver] = []

    def start(self) -> None:
        """Open the ports, start the reflectors and the loop. Raises OSError when a port is taken."""
        http = HealthServer(self._config.http_port, self.health, self.metrics)
        self._servers.append(http)
        if self._config.traces.enabled:
            self._servers.append(TraceReceiver(self._config.traces.port, self.traces, self._pod_of))
        for server in self._servers:
            server.start()
        self.cluster.start(self._stop)
        self._looping.start()
        log.info(
            "started: a tick every %g s, Prometheus at %s", self._config.interval, self._config.prometheus.url
        )

    def stop(self) -> None:
        """Finish: no new tick is begun; the present one and what it began get `STOP_S` each. What is still under
        way then goes on until the process is killed, and is finished by the next start.
        """
        self._stop.set()
        self.loop.wake()
        for server in self._servers:
            server.shutdown() if isinstance(server, HealthServer) else server.stop()
        if self._looping.is_alive():
            self._looping.join(STOP_S)
        if self.loop.finish(STOP_S):
            self._readers.shutdown(wait=False, cancel_futures=True)
        self._actors.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        self.loop.wake()

    def _pod_of(self, address: str) -> str:
        """The pod that has this address, "" when none does (its traffic was masqueraded)."""
        for record in self.cluster.pods.snapshot().values():
            if record.ip == address and not record.finished:
                return record.meta.name
        return ""
