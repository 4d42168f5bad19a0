"""Request traces switched on in managed servers, at a rate that their traffic allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.measure import PodKey
from slo_operator.observe.triton import TritonError

#: traced requests per second and server; about 5 kB of JSON each
TRACED_RPS = 100.0


def trace_rate(arrivals_rps: float, least: int) -> int:
    """One request in so many is traced: a power of two (so that it seldom changes), at least `least`."""
    if arrivals_rps <= TRACED_RPS:
        return least
    return max(least, 1 << math.ceil(math.log2(arrivals_rps / TRACED_RPS)))


def switch_on(reader: LiveReader, pods: Iterable[PodKey], live: Mapping[PodKey, LivePod], rate: int) -> str:
    """Set level and rate where they differ; returns the first problem, "" when there is none."""
    wanted = {"trace_level": ["TIMESTAMPS"], "trace_rate": [str(rate)]}
    for pod in pods:
        state, client = live.get(pod), reader.client(pod)
        if state is None or client is None or state.error or state.tracing is None:
            continue
        if all(state.tracing.get(name) == value for name, value in wanted.items()):
            continue
        try:
            client.set_trace_settings(wanted)
        except TritonError as error:
            return f"request traces: {error}"
        reader.invalidate(pod)
    return ""
