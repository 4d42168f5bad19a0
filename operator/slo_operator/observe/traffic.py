"""What arrives at a client-facing model and how its clients fare: arrival rate and client-side histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slo_operator.observe.measured import Field, Measurements
from slo_tuner.signal import Idle, Signal, Unknown, Value
from slo_tuner.snapshot import GatewayHistogram, ModelConfig, ModelRow, Pipeline


def histograms(
    measured: Measurements, namespace: str, pipelines: Sequence[Pipeline], last_action: float = 0.0
) -> tuple[GatewayHistogram, ...]:
    """Per pipeline the histogram over the SLO's window; after an action only the short one, which does
    not mix the time before it into the verdict.
    """
    out = []
    for pipeline in pipelines:
        found = [
            g.histogram
            for g in measured.gateways
            if g.namespace in ("", namespace) and g.histogram.model == pipeline.model
        ]
        found = [h for h in found if h.age_s <= 2 * measured.window_s]
        recent = measured.at - last_action < pipeline.window_s
        wanted = min(measured.window_s, pipeline.window_s) if recent else pipeline.window_s
        out += sorted((h for h in found if h.window_s == wanted), key=lambda h: h.source)
    return tuple(out)


def arrivals(
    pipeline: Pipeline,
    measured: Measurements,
    namespace: str,
    rows: Sequence[ModelRow],
    models: Mapping[str, ModelConfig],
) -> Signal:
    """Requests per second that arrive: answered, failed, and the growth of what waits.

    Waiting requests of a member that several pipelines share are theirs in proportion to their traffic.
    """
    mine = [r for r in rows if r.model == pipeline.model]
    if not mine:
        return Unknown("no ready pod")
    total, age, idle = 0.0, 0.0, 0
    for row in mine:
        if isinstance(row.requests, Idle):
            idle += 1
            continue
        if not isinstance(row.requests, Value):
            return Unknown(f"pod {row.pod}: {row.requests.reason}")
        failures = row.failures.value if isinstance(row.failures, Value) else 0.0
        grown = _backlog_growth(pipeline.model, row.pod, measured, namespace, models)
        total += max(0.0, row.requests.value + failures + grown) / row.window_s
        age = max(age, row.requests.age_s)
    if idle == len(mine):
        return Idle("counters flat and nothing pending on every ready pod")
    return Value(total, age, "answered + failed + growth of pending")


def _backlog_growth(
    model: str, pod: str, measured: Measurements, namespace: str, models: Mapping[str, ModelConfig]
) -> float:
    def of(name: str, field: Field) -> float:
        return measured.rows.get((namespace, pod, name), {}).get(field, 0.0)

    grown = of(model, Field.PENDING_GROWTH)
    steps = models[model].steps if model in models else ()
    for member in {s.model for s in steps}:
        served = of(member, Field.REQUESTS)
        share = min(1.0, of(model, Field.REQUESTS) / served) if served > 0 else 0.0
        grown += share * of(member, Field.PENDING_GROWTH)
    return grown
