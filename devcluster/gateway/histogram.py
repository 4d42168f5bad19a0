"""The gateway's own metrics, as gateways publish them: a latency histogram per model, status and pod."""

from __future__ import annotations

from collections import OrderedDict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from devcluster.gateway.records import Record

#: Upper bounds in seconds. 0.3 is the demo's SLO: the share of requests within it is then exact. 0.27 is
#: nine tenths of it, and tells whether the p99 is within ten percent of the SLO.
BOUNDS_S = (
    *(0.05, 0.1, 0.15, 0.2, 0.25, 0.27, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
#: Every replaced pod leaves series behind, and each is scraped for ever. Those of a pod that just went stay,
#: so that its last requests are still read; beyond so many pods the one unused for longest is forgotten.
#: More pods than this at a time would lose series that are in use: far more than the cluster can run.
KEPT_UPSTREAMS = 64


class GatewayMetrics:
    """Families of one gateway for the workload in `target_namespace`.

    `upstream` is the address of the pod that answered or was asked last, "" when there was none to ask.
    histogram=False leaves the latency histogram out, as clusters without a gateway are.
    """

    def __init__(self, target_namespace: str, histogram: bool = True) -> None:
        self.registry = CollectorRegistry()
        self._namespace = target_namespace
        self._upstreams: OrderedDict[str, None] = OrderedDict()  # the last used at the end
        self._latency = (
            Histogram(
                "gateway_request_duration_seconds",
                "Time from a request's arrival to the end of its answer.",
                ("model", "status", "target_namespace", "upstream"),
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
            labels = (record.model, str(record.status), self._namespace, record.pod)
            self._latency.labels(*labels).observe(record.latency_s)
            self._upstreams[record.pod] = None
            self._upstreams.move_to_end(record.pod)
            if len(self._upstreams) > KEPT_UPSTREAMS:
                gone, _ = self._upstreams.popitem(last=False)
                self._latency.remove_by_labels({"upstream": gone})
        if record.retries:
            self._retries.inc(record.retries)

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)
