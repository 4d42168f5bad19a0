"""Blocks of about ten seconds per pod and model: what verdicts on a change are made of.

Requests, latency and the time at each member of a pipeline come from the raw scrapes as differences of
counters, never from extrapolated rates; the share over the target from whoever can tell it per pod. Blocks
begin at the same moments on every pod. Scrapes are kept for the length of the history, so that a tick asks
only for the latest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slo_operator.observe.counters import Points, drop_before, growth, take_in
from slo_operator.observe.misses import MissSource
from slo_operator.observe.prometheus import RawSeries
from slo_tuner.snapshot import LatencyBlock

HISTORY_S = 600.0
MIN_BLOCK_S = 10.0
#: traces come in batches, and gateways are scraped, at most this late
DELAY_S = 10.0
#: by then whatever tells of a block is here, and what it says stays
FINAL_S = 60.0

_SUCCESS = "nv_inference_request_success"
_FAILURE = "nv_inference_request_failure"
_DURATION = "nv_inference_request_duration_us"

#: (namespace, pod, model)
_Row = tuple[str, str, str]
_Families = Mapping[str, Mapping[tuple[str, ...], Points]]


@dataclass(frozen=True, slots=True)
class _Question:
    """Whose blocks are asked for: a pod's, for one client-facing model and what its pipeline is made of."""

    namespace: str
    pod: str
    model: str
    members: tuple[str, ...]
    target_s: float


class BlockStore:
    """Raw scrapes of the last ten minutes, by series; and the blocks that were made of them, so that a tick
    makes only the latest.
    """

    def __init__(self, history_s: float = HISTORY_S):
        self._history_s = history_s
        self._series: dict[_Row, dict[str, dict[tuple[str, ...], Points]]] = {}
        self._filled_until: dict[tuple[str, str], float] = {}
        self._final: dict[_Question, dict[float, LatencyBlock | None]] = {}

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
            take_in(points, series.samples)
            if points:
                self._filled_until[row[0], row[1]] = points[-1][0]
        self._forget(now - self._history_s)

    def _forget(self, before: float) -> None:
        for row in list(self._series):
            for family in list(self._series[row]):
                parts = self._series[row][family]
                for part in list(parts):
                    points = parts[part]
                    drop_before(points, before)
                    if not points:
                        del parts[part]
                if not parts:
                    del self._series[row][family]
            if not self._series[row]:
                del self._series[row]
        alive = {row[:2] for row in self._series}
        self._filled_until = {pod: t for pod, t in self._filled_until.items() if pod in alive}
        self._final = {
            asked: {start: block for start, block in made.items() if start >= before}
            for asked, made in self._final.items()
            if (asked.namespace, asked.pod) in alive
        }

    def blocks(
        self,
        namespace: str,
        pods: Sequence[str],
        targets: Mapping[str, float],
        now: float,
        *,
        members: Mapping[str, Collection[str]] | None = None,
        sources: Sequence[MissSource] = (),
    ) -> tuple[LatencyBlock, ...]:
        """Whole blocks of those pods, oldest first. `targets`: client-facing model → its target in s; `members`:
        the models that its pipeline is made of; `sources`: who knows misses, best first.
        """
        out = []
        for pod in pods:
            for model, target_s in targets.items():
                parts = tuple((members or {}).get(model, ()))
                known = next((s for s in sources if s.covers(pod, model)), None)
                out += self._of_pod(_Question(namespace, pod, model, parts, target_s), known, now)
        return tuple(sorted(out, key=lambda b: (b.start, b.pod, b.model)))

    def _of_pod(self, asked: _Question, known: MissSource | None, now: float) -> list[LatencyBlock]:
        families = self._series.get((asked.namespace, asked.pod, asked.model), {})
        members = {m: self._series.get((asked.namespace, asked.pod, m)) for m in asked.members}
        present = {m: f for m, f in members.items() if f is not None}
        times = sorted({t for points in families.get(_SUCCESS, {}).values() for t, _ in points})
        length = block_length(times)
        if length is None:
            return []
        made = self._final.setdefault(asked, {})
        out = []
        for start in _starts(times, length):
            end = start + length
            if known is not None and end > now - DELAY_S:
                continue  # its misses are still on their way
            if start in made:
                block = made[start]
            else:
                block = _block(asked, families, present, known, start, length)
                if end < now - FINAL_S:
                    made[start] = block
            if block is not None:
                out.append(block)
        return out


def _block(
    asked: _Question,
    families: _Families,
    members: Mapping[str, _Families],
    known: MissSource | None,
    start: float,
    length: float,
) -> LatencyBlock | None:
    """None when a counter was reset or a scrape is missing."""
    a, b = start, start + length
    requests = _increase(families.get(_SUCCESS, {}), a, b)
    duration = _increase(families.get(_DURATION, {}), a, b)
    if requests is None or duration is None:
        return None
    return LatencyBlock(
        pod=asked.pod,
        model=asked.model,
        start=start,
        seconds=length,
        requests=requests,
        latency_sum_s=duration / 1e6,
        failures=_increase(families.get(_FAILURE, {}), a, b) or 0.0,
        misses=None
        if known is None
        else known.misses(asked.pod, asked.model, a, b, asked.target_s, requests),
        stage_sums_s=_stage_sums(members, a, b, requests),
    )


def _stage_sums(members: Mapping[str, _Families], a: float, b: float, requests: float) -> dict[str, float]:
    """Seconds of waiting and computing by member, of this many requests. A member that pipelines share takes as
    long for one's requests as for all; empty when one of them cannot be told.
    """
    sums = {}
    for member, families in members.items():
        served = _increase(families.get(_SUCCESS, {}), a, b)
        seconds = _increase(families.get(_DURATION, {}), a, b)
        if served is None or seconds is None or (served == 0 and requests > 0):
            return {}
        sums[member] = seconds / 1e6 * requests / served if served > 0 else 0.0
    return sums


def block_length(times: Sequence[float]) -> float | None:
    """The smallest multiple of the scrape interval that is at least ten seconds; None without two scrapes."""
    gaps = sorted(b - a for a, b in pairwise(times))
    if not gaps:
        return None
    interval = max(1.0, round(gaps[len(gaps) // 2]))
    return interval * math.ceil(MIN_BLOCK_S / interval)


def _starts(times: Sequence[float], length: float) -> list[float]:
    """The blocks of the common grid that lie between the first scrape and the last."""
    return [k * length for k in range(math.ceil(times[0] / length), math.floor(times[-1] / length))]


def _increase(parts: Mapping[tuple[str, ...], Points], a: float, b: float) -> float | None:
    """Growth of all parts from `a` to `b`; None when one fell or was not scraped around both."""
    total = 0.0
    for points in parts.values():
        grown = growth(points, a, b)
        if grown is None:
            return None
        total += grown
    return total if parts else None
