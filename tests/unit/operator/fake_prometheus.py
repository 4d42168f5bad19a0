"""A small Prometheus that answers the catalogue's queries from steady loads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from slo_operator.observe.prometheus import PrometheusError, RawSeries, Sample


@dataclass
class Load:
    """What one model on one pod does per second; durations are seconds per request."""

    rps: float
    latency: float = 0.0
    queue: float = 0.0
    infer: float = 0.0
    pending: float = 0.0
    least_pending: float = 0.0


class FakePrometheus:
    """Answers the catalogue's queries from steady loads, scraped every five seconds."""

    def __init__(self, scrape_s: float = 5.0) -> None:
        self.scrape_s = scrape_s
        self.loads: dict[tuple[str, str], Load] = {}
        self.gone = False
        self.empty = False
        self.queries = 0
        self.extra: dict[str, list[Sample]] = {}
        self.namespace = "serving"
        #: by a pod's address, (requests/s, share of them over 300 ms) as a gateway counts them
        self.answered: dict[str, tuple[float, float]] = {}

    _FAMILIES: ClassVar[dict[str, Callable[[Load], float]]] = {
        "nv_inference_request_success{": lambda x: x.rps,
        "nv_inference_request_failure{": lambda x: 0.0,
        "nv_inference_exec_count{": lambda x: x.rps,
        "nv_inference_count{": lambda x: x.rps,
        "nv_inference_request_duration_us{": lambda x: x.rps * x.latency * 1e6,
        "nv_inference_queue_duration_us{": lambda x: x.rps * x.queue * 1e6,
        "nv_inference_compute_input_duration_us{": lambda x: 0.0,
        "nv_inference_compute_infer_duration_us{": lambda x: x.rps * x.infer * 1e6,
        "nv_inference_compute_output_duration_us{": lambda x: 0.0,
    }

    def vector(self, expression: str, at: float) -> list[Sample]:
        self.queries += 1
        self._check()
        if self.empty:
            return []
        for text, samples in self.extra.items():
            if text in expression:
                return samples
        if "delta(nv_inference_pending" in expression:
            return self._each(lambda x: 0.0)
        if "min_over_time(nv_inference_pending" in expression:
            return self._each(lambda x: x.least_pending)
        if "nv_inference_pending_request_count{" in expression:
            return self._each(lambda x: x.pending)
        if expression.startswith("count by (namespace) (nv_"):
            return [Sample({"namespace": self.namespace}, float(len(self.loads)))]
        if expression.startswith("max by (namespace, pod, model) (nv_"):
            return self._each(lambda x: x.rps)
        for family, rate in self._FAMILIES.items():
            if f"increase({family}" in expression:
                window = float(expression.split("[")[1].split("s]", maxsplit=1)[0])
                return self._each(lambda x, rate=rate, window=window: rate(x) * window)
        return []

    def matrix(self, expression: str, at: float) -> list[RawSeries]:
        self.queries += 1
        self._check()
        if self.empty:
            return []
        window = float(expression.split("[")[1].split("s]", maxsplit=1)[0])
        newest = math.floor(at / self.scrape_s) * self.scrape_s
        times = [newest - i * self.scrape_s for i in range(int(window // self.scrape_s))][::-1]
        out = []
        if "_bucket{" in expression:
            for address, (rps, slow) in self.answered.items():
                for le, rate in (("0.3", rps * (1 - slow)), ("+Inf", rps)):
                    labels = {"model": "assistant", "target_namespace": self.namespace, "status": "200"}
                    labels |= {"upstream": f"{address}:8000", "le": le}
                    out.append(RawSeries(labels, tuple((t, rate * (t - 1_700_000_000)) for t in times)))
            return out
        for (pod, model), load in self.loads.items():
            families = ("success",) if "__name__" not in expression else ("success", "failure", "duration_us")
            for family in families:
                name = f"nv_inference_request_{family}"
                rate = self._FAMILIES[name + "{"](load)
                labels = {
                    "__name__": name,
                    "namespace": self.namespace,
                    "pod": pod,
                    "model": model,
                    "version": "1",
                }
                out.append(RawSeries(labels, tuple((t, rate * (t - 1_700_000_000)) for t in times)))
        return out

    def _each(self, value: Any) -> list[Sample]:
        return [
            Sample({"namespace": self.namespace, "pod": p, "model": m, "version": "1"}, value(x))
            for (p, m), x in self.loads.items()
        ]

    def _check(self) -> None:
        if self.gone:
            raise PrometheusError("http://prometheus: connection refused")
