"""Request traces as Triton sends them (OpenTelemetry, JSON over HTTP), turned into stage times.

A request is a tree of spans: the request itself, one span per model, inside it the compute span. The
root ends last and is sent last, so a request is complete when its root arrives; spans whose root
never comes are forgotten. Memory is bounded: the oldest requests are dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slo_tuner.snapshot import RequestTrace, StageTime

POD_ATTRIBUTE = "k8s.pod.name"
MODEL_ATTRIBUTE = "triton.model_name"
ROOT_NAME = "InferRequest"

#: spans that wait for their root, over all traces
MAX_WAITING_SPANS = 50_000


class TraceFormatError(ValueError):
    """The body is not OTLP; the message says where."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are nanoseconds since the epoch; `events` holds the first of each name."""

    trace: str
    id: str
    parent: str
    name: str
    model: str
    start_ns: int
    end_ns: int
    events: Mapping[str, int]


class TraceBuffer:
    """Assembles requests and keeps the latest ones. Safe for several threads."""

    def __init__(self, max_requests: int, history_s: float = 600.0):
        self._lock = threading.Lock()
        self._done: deque[RequestTrace] = deque(maxlen=max_requests)
        self._waiting: OrderedDict[tuple[str, str], list[Span]] = OrderedDict()
        self._waiting_spans = 0
        self._history_s = history_s
        #: spans without a root that had to be dropped
        self.dropped = 0

    def add(self, body: Mapping[str, Any], sender: str = "") -> int:
        """Take in one OTLP request; `sender` names the pod when the body does not.

        Returns how many requests became complete. Raises TraceFormatError, and then nothing was taken in.
        """
        spans = [(pod or sender, span) for pod, span in read_spans(body)]
        done = 0
        with self._lock:
            for pod, span in spans:
                self._waiting.setdefault((pod, span.trace), []).append(span)
                self._waiting_spans += 1
            for key in dict.fromkeys((pod, span.trace) for pod, span in spans):
                done += self._complete(key)
            while self._waiting_spans > MAX_WAITING_SPANS:
                _, lost = self._waiting.popitem(last=False)
                self._waiting_spans -= len(lost)
                self.dropped += len(lost)
        return done

    def _complete(self, key: tuple[str, str]) -> int:
        spans = self._waiting[key]
        roots = [s for s in spans if s.name == ROOT_NAME]
        if not roots:
            return 0
        traces = [t for t in (read_request(key[0], root, spans) for root in roots) if t is not None]
        del self._waiting[key]
        self._waiting_spans -= len(spans)
        self._done.extend(traces)
        return len(traces)

    def by_pod(self, now: float) -> dict[str, list[RequestTrace]]:
        """The requests of the last ten minutes by pod, in the order in which they ended."""
        out: dict[str, list[RequestTrace]] = defaultdict(list)
        with self._lock:
            while self._done and self._done[0].start < now - self._history_s:
                self._done.popleft()
            for trace in self._done:
                out[trace.pod].append(trace)
        return dict(out)


def read_spans(body: Mapping[str, Any]) -> Iterable[tuple[str, Span]]:
    """(pod or "", span) of an OTLP/JSON ExportTraceServiceRequest. Raises TraceFormatError."""
    try:
        out = []
        for resource in body["resourceSpans"]:
            pod = _attributes(resource.get("resource", {})).get(POD_ATTRIBUTE, "")
            for scope in resource.get("scopeSpans", []):
                out += [(pod, _span(raw)) for raw in scope.get("spans", [])]
        return out
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFormatError(f"not an OTLP trace request: {type(error).__name__}: {error}") from error


def _span(raw: Mapping[str, Any]) -> Span:
    events: dict[str, int] = {}
    for event in raw.get("events", []):
        events.setdefault(event["name"], int(event["timeUnixNano"]))
    return Span(
        trace=raw["traceId"],
        id=raw["spanId"],
        parent=raw.get("parentSpanId", ""),
        name=raw["name"],
        model=_attributes(raw).get(MODEL_ATTRIBUTE, ""),
        start_ns=int(raw["startTimeUnixNano"]),
        end_ns=int(raw["endTimeUnixNano"]),
        events=events,
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, str]:
    return {
        a["key"]: str(a["value"]["stringValue"])
        for a in holder.get("attributes", [])
        if "stringValue" in a.get("value", {})
    }


def read_request(pod: str, root: Span, spans: list[Span]) -> RequestTrace | None:
    """One request from its root and everything below it; None when it carries no model or no time."""
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        children[span.parent].append(span)
    # Span ids are random, but a loop in hostile input must end all the same.
    below, seen, frontier = [], {root.id}, list(children[root.id])
    while frontier:
        span = frontier.pop()
        if span.id in seen:
            continue
        seen.add(span.id)
        below.append(span)
        frontier += children[span.id]
    model = next((s.model for s in children[root.id] if s.model), root.model)
    latency_s = (root.end_ns - root.start_ns) / 1e9
    if not model or latency_s <= 0 or not pod:
        return None
    stages: dict[str, StageTime] = {}
    for span in below:
        stage = _stage(span, children)
        if stage is not None:
            old = stages.get(span.model, StageTime(0.0, 0.0))
            stages[span.model] = StageTime(old.queue_s + stage.queue_s, old.compute_s + stage.compute_s)
    return RequestTrace(pod, model, root.start_ns / 1e9, latency_s, stages)


def _stage(span: Span, children: Mapping[str, list[Span]]) -> StageTime | None:
    """Queue and compute of one model's span; None for ensembles, which only pass on."""
    queue_start = span.events.get("QUEUE_START")
    if not span.model or queue_start is None:
        return None
    holders = [span, *children.get(span.id, [])]
    start = next((s.events["COMPUTE_START"] for s in holders if "COMPUTE_START" in s.events), None)
    end = next((s.events["COMPUTE_END"] for s in holders if "COMPUTE_END" in s.events), None)
    if start is None or end is None:
        return None
    return StageTime(max(0, start - queue_start) / 1e9, max(0, end - start) / 1e9)
