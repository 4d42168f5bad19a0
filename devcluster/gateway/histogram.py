"""The gateway's own metrics, as gateways publish them: a latency histogram per model and status."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from devcluster.gateway.records import Record

#: Upper bounds in seconds. 0.3 is the demo's SLO: the share of requests within it is then exact.
BOUNDS_S = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class GatewayMetrics:
    """Families of one gateway for the workload in `target_namespace`.

    histogram=False leaves the latency histogram out, as clusters without a gateway are.
    """

    def __init__(self, target_namespace: str, histogram: bool = True) -> None:
        self.registry = CollectorRegistry()
        self._namespace = target_namespace
        self._latency = (
            Histogram(
                "gateway_request_duration_seconds",
                "Time from a request's arrival to the end of its answer.",
                ("model", "status", "target_namespace"),
                buckets=BOUNDS_S,
                registry=self.registry,
            )
            if histogram
            else None
        )
        self._retries = Counter(
            "gateway_connect_retries",
            "Requests sent to another pod because the first refused the connection.",
            registry=self.registry,
        )
        self.outstanding = Gauge(
            "gateway_requests_outstanding", "Requests not yet answered.", registry=self.registry
        )

    def observe(self, record: Record) -> None:
        if self._latency is not None:
            self._latency.labels(record.model, str(record.status), self._namespace).observe(record.latency_s)
        if record.retries:
            self._retries.inc(record.retries)

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)
