"""Blocks of about ten seconds per pod and model: what verdicts on a change are made of.

Requests and latency come from the raw scrapes as exact differences of counters between two of them,
never from extrapolated rates; the share over the target from request traces where there are any.
Scrapes are kept for the length of the history, so that a tick asks only for the latest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from slo_operator.observe.prometheus import RawSeries
from slo_tuner.snapshot import LatencyBlock, RequestTrace

HISTORY_S = 600.0
MIN_BLOCK_S = 10.0
#: traces come in batches at most this late
TRACE_DELAY_S = 10.0

_SUCCESS = "nv_inference_request_success"
_FAILURE = "nv_inference_request_failure"
_DURATION = "nv_inference_request_duration_us"

#: (namespace, pod, model)
_Row = tuple[str, str, str]
_Points = list[tuple[float, float]]


class BlockStore:
    """Raw scrapes of the last ten minutes, by series."""

    def __init__(self, history_s: float = HISTORY_S):
        self._history_s = history_s
        self._series: dict[_Row, dict[str, dict[tuple[str, ...], _Points]]] = {}
        self._filled_until: dict[tuple[str, str], float] = {}

    def seconds_to_ask(self, pods: Iterable[tuple[str, str]], now: float) -> float:
        """How far back the next query must reach: all of the history for a pod not seen yet."""
        gaps = [now - self._filled_until.get(pod, now - self._history_s) for pod in pods]
        return min(self._history_s, max(gaps, default=0.0) + 60.0)

    def add(self, answer: Sequence[RawSeries], now: float) -> None:
        """Take in what a query brought; samples older than the history are dropped."""
        for series in answer:
            labels = series.labels
            row = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("model", ""))
            family = labels.get("__name__", "")
            # Duplicates of HA pairs differ in labels outside of these and replace each other.
            part = tuple(labels.get(k, "") for k in ("version", "gpu_uuid", "reason"))
            points = self._series.setdefault(row, {}).setdefault(family, {}).setdefault(part, [])
            newest = points[-1][0] if points else -math.inf
            points.extend(p for p in series.samples if p[0] > newest and math.isfinite(p[1]))
            if points:
                self._filled_until[row[0], row[1]] = points[-1][0]
        self._forget(now - self._history_s)

    def _forget(self, before: float) -> None:
        for row in list(self._series):
            for family in list(self._series[row]):
                parts = self._series[row][family]
                for part in list(parts):
                    points = parts[part]
                    del points[: bisect_left(points, (before, -math.inf))]
                    if not points:
                        del parts[part]
                if not parts:
                    del self._series[row][family]
            if not self._series[row]:
                del self._series[row]
        alive = {row[:2] for row in self._series}
        self._filled_until = {pod: t for pod, t in self._filled_until.items() if pod in alive}

    def blocks(
        self,
        namespace: str,
        pods: Sequence[str],
        targets: Mapping[str, float],
        traces: Sequence[RequestTrace],
        now: float,
    ) -> tuple[LatencyBlock, ...]:
        """Whole blocks of those pods, oldest first. `targets`: client-facing model → its target in s."""
        traced = _TraceIndex(traces)
        out = []
        for pod in pods:
            for model, target_s in targets.items():
                families = self._series.get((namespace, pod, model))
                if families is not None:
                    out += _blocks(pod, model, families, target_s, traced, now)
        return tuple(sorted(out, key=lambda b: (b.start, b.pod, b.model)))


def _blocks(
    pod: str,
    model: str,
    families: Mapping[str, Mapping[tuple[str, ...], _Points]],
    target_s: float,
    traced: _TraceIndex,
    now: float,
) -> list[LatencyBlock]:
    times = sorted({t for points in families.get(_SUCCESS, {}).values() for t, _ in points})
    length = block_length(times)
    if length is None:
        return []
    out = []
    for start, (a, b) in _edges(times, length):
        requests = _increase(families.get(_SUCCESS, {}), a, b)
        duration = _increase(families.get(_DURATION, {}), a, b)
        if requests is None or duration is None:
            continue  # a counter was reset, or a scrape is missing
        if b > now - TRACE_DELAY_S and traced.covers(pod, model):
            continue  # its traces are still on their way
        failures = _increase(families.get(_FAILURE, {}), a, b)
        misses = traced.misses(pod, model, a, b, target_s, requests)
        stages = traced.stage_sums(pod, model, a, b, requests)
        out.append(
            LatencyBlock(pod, model, start, length, requests, duration / 1e6, failures or 0.0, misses, stages)
        )
    return out


def block_length(times: Sequence[float]) -> float | None:
    """The smallest multiple of the scrape interval that is at least ten seconds; None without two scrapes."""
    gaps = sorted(b - a for a, b in pairwise(times))
    if not gaps:
        return None
    interval = max(1.0, round(gaps[len(gaps) // 2]))
    return interval * math.ceil(MIN_BLOCK_S / interval)


def _edges(times: Sequence[float], length: float) -> list[tuple[float, tuple[float, float]]]:
    """Block start on the common grid → the scrapes nearest to its two ends, where both are near."""
    out = []
    first, last = math.floor(times[0] / length), math.floor(times[-1] / length)
    for k in range(first, last + 1):
        start = k * length
        a, b = _nearest(times, start), _nearest(times, start + length)
        # Every pod is scraped at a phase of its own; half an interval off is as near as it gets.
        if a < b and abs(a - start) <= length / 3 and abs(b - start - length) <= length / 3:
            out.append((start, (a, b)))
    return out


def _nearest(times: Sequence[float], t: float) -> float:
    i = bisect_left(times, t)
    return min(times[max(0, i - 1) : i + 1], key=lambda x: abs(x - t))


def _increase(parts: Mapping[tuple[str, ...], _Points], a: float, b: float) -> float | None:
    """Growth of all parts from scrape `a` to scrape `b`; None when one fell or was not scraped then."""
    total = 0.0
    for points in parts.values():
        low, high = _at(points, a), _at(points, b)
        if low is None or high is None or high < low:
            return None
        total += high - low
    return total if parts else None


def _at(points: _Points, t: float) -> float | None:
    i = bisect_left(points, (t - 0.001, -math.inf))
    return points[i][1] if i < len(points) and points[i][0] <= t + 0.001 else None


class _TraceIndex:
    """Traced requests by pod and model, in the order of their ends."""

    def __init__(self, traces: Sequence[RequestTrace]):
        self._ends: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._traces: dict[tuple[str, str], list[RequestTrace]] = defaultdict(list)
        for t in sorted(traces, key=lambda t: t.start + t.latency_s):
            self._ends[t.pod, t.model].append(t.start + t.latency_s)
            self._traces[t.pod, t.model].append(t)

    def covers(self, pod: str, model: str) -> bool:
        """Whether requests of this model are being traced on this pod at all."""
        return bool(self._ends.get((pod, model)))

    def misses(
        self, pod: str, model: str, a: float, b: float, target_s: float, requests: float
    ) -> float | None:
        """Requests over the target that ended in (a, b]; None when too few of them were traced."""
        seen = self._sample(pod, model, a, b, requests)
        if not seen:
            return 0.0 if requests == 0 else None
        return sum(t.latency_s > target_s for t in seen) / len(seen) * max(requests, len(seen))

    def stage_sums(self, pod: str, model: str, a: float, b: float, requests: float) -> dict[str, float]:
        """Seconds of waiting and computing by member, of all requests that ended in (a, b], from those that
        were traced; empty when too few were.
        """
        seen = self._sample(pod, model, a, b, requests)
        sums: dict[str, float] = defaultdict(float)
        for t in seen:
            for member, stage in t.stages.items():
                sums[member] += stage.queue_s + stage.compute_s
        return {member: seconds * requests / len(seen) for member, seconds in sums.items()}

    def _sample(self, pod: str, model: str, a: float, b: float, requests: float) -> list[RequestTrace]:
        """The traced requests that ended in (a, b], if they stand for all of them."""
        ends = self._ends.get((pod, model), [])
        i, j = bisect_right(ends, a), bisect_right(ends, b)
        # Tracing that was switched on within the block covers a part of it only.
        if i == j or j - i < 0.02 * requests or not _spans(ends, i, j, a, b):
            return []
        return self._traces[pod, model][i:j]


def _spans(ends: Sequence[float], i: int, j: int, a: float, b: float) -> bool:
    """Whether traces reach into both outer thirds of the block, so that they cover it."""
    third = (b - a) / 3
    return j - i < 4 or (ends[i] <= a + 2 * third and ends[j - 1] >= b - 2 * third)
