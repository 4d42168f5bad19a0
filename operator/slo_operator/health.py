"""Whether the loop turns, and the operator's own metrics. Series are bounded: by resource and by enums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from slo_operator.api.resource import InferenceSLO
from slo_operator.findings import point_met
from slo_operator.outcome import ServerOutcome

#: the loop is dead when it has not ticked for so many intervals
MISSED_TICKS = 4
MAX_RESOURCES = 2000
_LABELS = ["namespace", "name", "server", "model", "objective"]


class Health:
    """`deaf` names the watches that have said nothing for too long."""

    def __init__(self, interval_s: float, clock: Callable[[], float], deaf: Callable[[], Sequence[str]]):
        self._interval_s = interval_s
        self._clock = clock
        self._deaf = deaf
        self._last = clock()

    def ticked(self, at: float) -> None:
        self._last = at

    def problem(self) -> str:
        """Why the operator should be restarted; "" when it is well."""
        silence = self._clock() - self._last
        # A start takes a while, and acting may take as long as one interval beyond its own.
        if silence > max(MISSED_TICKS * self._interval_s, 60.0):
            return f"no tick for {silence:.0f} s; the interval is {self._interval_s:g} s"
        deaf = self._deaf()
        return f"nothing heard from the watch of {', '.join(deaf)}" if deaf else ""


class Metrics:
    """What the operator publishes of itself."""

    def __init__(self) -> None:
        disable_created_metrics()  # a series of its own for each counter, and nobody reads them
        self.registry = CollectorRegistry()
        r = self.registry
        self.ticks = Histogram(
            "inferenceslo_tick_seconds",
            "Duration of a round over all resources",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=r,
        )
        self.tick_failures = Counter("inferenceslo_tick_failures_total", "Rounds that broke off", registry=r)
        self.prometheus_up = Gauge("inferenceslo_prometheus_up", "1 when Prometheus answered", registry=r)
        self.decisions = Counter(
            "inferenceslo_decisions_total", "Decisions that began or ended something", ["reason"], registry=r
        )
        self.loads = Counter(
            "inferenceslo_model_loads_total", "Model loads attempted", ["result"], registry=r
        )
        self.met = Gauge(
            "inferenceslo_objective_met", "1 met, 0 missed, absent when not measurable", _LABELS, registry=r
        )
        self.attainment = Gauge(
            "inferenceslo_objective_attainment", "Share of requests within the target", _LABELS, registry=r
        )
        self._series: dict[str, set[tuple[str, ...]]] = {}
        self._lock = threading.Lock()

    def observe_tick(self, seconds: float, prometheus_up: bool) -> None:
        self.ticks.observe(seconds)
        self.prometheus_up.set(prometheus_up)

    def count_loads(self, attempted: int, refused: int) -> None:
        self.loads.labels("refused").inc(refused)
        self.loads.labels("done").inc(max(0, attempted - refused))

    def record(self, resource: InferenceSLO, outcomes: Sequence[ServerOutcome]) -> None:
        """This resource's objectives; those that are no longer measured disappear."""
        now: set[tuple[str, ...]] = set()
        for outcome in outcomes:
            if outcome.decision is None:
                continue
            if outcome.decision.acted:
                self.decisions.labels(outcome.decision.reason.value).inc()
            for o in outcome.decision.assessment.objectives:
                key = (resource.namespace, resource.name, outcome.server.name, o.model, o.objective)
                met = point_met(o)
                if met is None or len(self._series) >= MAX_RESOURCES:
                    continue
                now.add(key)
                self.met.labels(*key).set(met)
                if o.attainment is not None:
                    self.attainment.labels(*key).set(o.attainment)
        with self._lock:
            self._remove(self._series.get(resource.uid, set()) - now)
            self._series[resource.uid] = now

    def forget_all_but(self, uids: set[str]) -> None:
        with self._lock:
            for uid in [u for u in self._series if u not in uids]:
                self._remove(self._series.pop(uid))

    def _remove(self, keys: set[tuple[str, ...]]) -> None:
        for key in keys:
            for gauge in (self.met, self.attainment):
                gauge.remove_by_labels(dict(zip(_LABELS, key, strict=True)))


class HealthServer(ThreadingHTTPServer):
    """/healthz and /metrics."""

    daemon_threads = True

    def __init__(self, port: int, health: Health, metrics: Metrics, host: str = ""):
        self.health = health
        self.metrics = metrics
        super().__init__((host, port), _Handler)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = 10

    def do_GET(self) -> None:
        if self.path == "/healthz":
            problem = self.server.health.problem()
            self._answer(503 if problem else 200, "text/plain", (problem or "ok").encode())
        elif self.path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.server.metrics.registry))
        else:
            self._answer(404, "text/plain", b"there is /healthz and /metrics")

    def _answer(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Probes every few seconds are no news."""
