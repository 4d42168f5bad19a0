"""Requests over the target, per pod and stretch of time: from the gateway's histogram, or from request traces.

Either tells a share; what it is a share of, the server's own counters say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe.counters import Points, drop_before, growth, take_in
from slo_operator.observe.gateway import bound_of, key_of, succeeded
from slo_operator.observe.prometheus import RawSeries
from slo_tuner.snapshot import RequestTrace

#: (namespace or "", pod's name or address)
_Pod = tuple[str, str]
#: one pod's buckets of answered requests, by the labels of their series: (upper bound in seconds, samples)
_Buckets = dict[frozenset[tuple[str, str]], tuple[float, Points]]


class MissSource(Protocol):
    """Who knows how many of a pod's requests were over the target."""

    def covers(self, pod: str, model: str) -> bool:
        """Whether it knows this pod's requests for this model at all."""
        ...

    def misses(
        self, pod: str, model: str, a: float, b: float, target_s: float, requests: float
    ) -> float | None:
        """How many of the `requests` that ended in (a, b] were over the target; None when it cannot tell."""
        ...


class GatewayStore:
    """Raw scrapes of gateway histograms that name the pod, over the length of the history."""

    def __init__(self, history_s: float):
        self._history_s = history_s
        self._pods: dict[_Pod, dict[str, _Buckets]] = {}  # and by model
        self._filled_until: float | None = None

    def seconds_to_ask(self, now: float) -> float:
        """How far back the next query must reach."""
        if self._filled_until is None:
            return self._history_s
        return min(self._history_s, now - self._filled_until + 60.0)

    def add(self, config: GatewayHistogramConfig, answer: Sequence[RawSeries], now: float) -> None:
        """Take in the buckets that a query brought; samples older than the history are dropped."""
        for one in answer:
            bound = bound_of(one.labels, config)
            pod = _host(one.labels.get(config.pod_label, ""))
            if math.isnan(bound) or not pod or not succeeded(one.labels, config):
                continue
            namespace, model = key_of(one.labels, config)
            buckets = self._pods.setdefault((namespace, pod), {}).setdefault(model, {})
            _, points = buckets.setdefault(frozenset(one.labels.items()), (bound, []))
            take_in(points, one.samples)
            if points:
                self._filled_until = max(self._filled_until or 0.0, points[-1][0])
        self._forget(now - self._history_s)

    def _forget(self, before: float) -> None:
        for pod in list(self._pods):
            models = self._pods[pod]
            for model in list(models):
                buckets = models[model]
                for labels in list(buckets):
                    _, points = buckets[labels]
                    drop_before(points, before)
                    if not points:
                        del buckets[labels]
                if not buckets:
                    del models[model]
            if not models:
                del self._pods[pod]

    def of(self, namespace: str, addresses: Mapping[str, str]) -> GatewayMisses:
        """What is known of these pods of a namespace, by name → address."""
        return GatewayMisses(
            {
                (name, model): buckets
                for name, address in addresses.items()
                for where in ("", namespace)
                for pod in (name, address)
                for model, buckets in self._pods.get((where, pod), {}).items()
            }
        )


class GatewayMisses:
    """A gateway's view of one server's pods. Requests that failed are the server's counters' to tell."""

    def __init__(self, pods: Mapping[tuple[str, str], _Buckets]):
        self._pods = pods

    def covers(self, pod: str, model: str) -> bool:
        return (pod, model) in self._pods

    def misses(
        self, pod: str, model: str, a: float, b: float, target_s: float, requests: float
    ) -> float | None:
        buckets = self._pods.get((pod, model))
        if buckets is None:
            return None
        total = _growth(buckets, math.inf, a, b)
        within = _growth(buckets, target_s, a, b)
        if total is None or within is None:
            return None
        if total <= 0.0:
            return 0.0 if requests == 0 else None
        return min(1.0, max(0.0, 1.0 - within / total)) * requests


def _growth(buckets: _Buckets, bound: float, a: float, b: float) -> float | None:
    """Growth of one bucket over all gateways from a to b; None when a counter was reset, was not scraped around
    both, or nobody has this bound.
    """
    grown: float | None = None
    for upper, points in buckets.values():
        if upper != bound and abs(upper - bound) > 1e-9:
            continue
        one = growth(points, a, b)
        if one is None:
            return None
        grown = (grown or 0.0) + one
    return grown


def _host(pod: str) -> str:
    """A pod's name, or its address without the port."""
    host, colon, port = pod.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() and (":" not in host or "[" in host) else pod


class TracedMisses:
    """Traced requests by pod and model, in the order of their ends."""

    def __init__(self, traces: Sequence[RequestTrace]):
        self._ends: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
        for t in sorted(traces, key=lambda t: t.start + t.latency_s):
            self._ends[t.pod, t.model].append(t.start + t.latency_s)
            self._latencies[t.pod, t.model].append(t.latency_s)

    def covers(self, pod: str, model: str) -> bool:
        return bool(self._ends.get((pod, model)))

    def misses(
        self, pod: str, model: str, a: float, b: float, target_s: float, requests: float
    ) -> float | None:
        ends = self._ends.get((pod, model), [])
        i, j = bisect_right(ends, a), bisect_right(ends, b)
        # Tracing that was switched on within the block covers a part of it only.
        if i == j or j - i < 0.02 * requests or not _spans(ends, i, j, a, b):
            return 0.0 if requests == 0 else None
        seen = self._latencies[pod, model][i:j]
        return sum(x > target_s for x in seen) / len(seen) * max(requests, len(seen))


def _spans(ends: Sequence[float], i: int, j: int, a: float, b: float) -> bool:
    """Whether traces reach into both outer thirds of the block, so that they cover it."""
    third = (b - a) / 3
    return j - i < 4 or (ends[i] <= a + 2 * third and ends[j - 1] >= b - 2 * third)
