"""Request traces in managed servers: on where they are wanted and safe, at a rate that the traffic allows.

Triton's tracing writes into freed memory when the last part of a traced request is released after its
answer was sent. Dynamic batching makes that common, so a pod that batches is never traced. See "Request
traces and Triton's tracing fault" in docs/operations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.measured import PodKey
from slo_operator.observe.triton import TritonError
from slo_tuner.settings import PodSettings

#: traced requests per second and server; about 5 kB of JSON each
TRACED_RPS = 100.0


def trace_rate(arrivals_rps: float, least: int) -> int:
    """One request in so many is traced: a power of two (so that it seldom changes), at least `least`."""
    if arrivals_rps <= TRACED_RPS:
        return least
    return max(least, 1 << math.ceil(math.log2(arrivals_rps / TRACED_RPS)))


def batches(settings: PodSettings) -> bool:
    """Whether any model makes batches of several requests."""
    return any(s.batching is not None and s.max_batch_size > 1 for s in settings.values())


def set_traces(
    reader: LiveReader,
    live: Mapping[PodKey, LivePod],
    wanted: Mapping[str, PodSettings],
    rate: int | None,
) -> str:
    """Set level and rate where they differ; returns the first problem, "" when there is none.

    Off in pods that batch or are about to (`wanted`: pod → the settings it will be given), and in all of
    them when `rate` is None.
    """
    off = {"trace_level": ["OFF"]}
    on = {"trace_level": ["TIMESTAMPS"], "trace_rate": [str(rate)]}
    problem = ""
    for pod, state in live.items():
        client = reader.client(pod)
        if client is None or state.error or state.tracing is None:
            continue
        unsafe = batches(state.settings) or batches(wanted.get(pod[1], {}))
        level = off if rate is None or unsafe else on
        if all(state.tracing.get(name) == value for name, value in level.items()):
            continue
        try:
            client.set_trace_settings(level)
        except TritonError as error:
            problem = problem or f"request traces: {error}"
            continue
        reader.invalidate(pod)
    return problem
