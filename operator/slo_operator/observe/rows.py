"""One model on one pod: measured increases as three-valued signals.

Idleness is proven, never assumed: fresh scrapes that cover the window, flat counters, nothing pending.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from slo_operator.observe.measured import Field, Measurements, PodKey
from slo_tuner.signal import Idle, Signal, Unknown, Value
from slo_tuner.snapshot import BatchTime, ModelConfig, ModelRow

if TYPE_CHECKING:
    from slo_operator.observe.live import LivePod

_SOURCE = "Prometheus: nv_inference_*"
_COMPUTE = (Field.COMPUTE_INPUT_US, Field.COMPUTE_INFER_US, Field.COMPUTE_OUTPUT_US)


def compute_s(measured: Measurements, namespace: str, pods: Collection[str]) -> dict[str, float]:
    """Mean compute seconds per request by model, over these pods; models without requests, or of which some pod does
    not tell the time, are left out."""
    sums: dict[str, tuple[float, float]] = {}
    for (where, pod, model), fields in measured.rows.items():
        if where != namespace or pod not in pods:
            continue
        spent = sum(fields.get(f, 0.0 if f is not Field.COMPUTE_INFER_US else math.nan) for f in _COMPUTE)
        requests, total = sums.get(model, (0.0, 0.0))
        sums[model] = (requests + fields.get(Field.REQUESTS, 0.0), total + spent / 1e6)
    return {m: total / n for m, (n, total) in sums.items() if n > 0 and math.isfinite(total)}


def model_row(
    measured: Measurements,
    namespace: str,
    pod: str,
    config: ModelConfig,
    models: Mapping[str, ModelConfig],
    live: LivePod | None,
) -> ModelRow:
    """The row of `config` on `pod`; `models` are all of the server, for an ensemble's members."""
    key = (namespace, pod, config.name)
    cover = measured.coverage.get((namespace, pod))
    fields = measured.rows.get(key, {})
    problem = measured.row_problems.get(key) or _problem(measured, namespace, pod)
    window_s = cover.window_s if cover and cover.window_s > 0 else measured.window_s
    age_s = cover.age_s if cover else 0.0

    def signal(name: Field, scale: float = 1.0) -> Signal:
        if problem:
            return Unknown(problem)
        if name not in fields:
            return Unknown(measured.failed.get(name.value) or "not published for this model")
        return Value(fields[name] * scale, age_s, _SOURCE)

    def waiting(name: Field) -> Signal:
        own = signal(name)
        if problem or isinstance(own, Value) or not config.is_ensemble:
            return own
        return _of_members(measured, (namespace, pod), config, models, name)

    pending = waiting(Field.PENDING)
    quiet = not problem and _is_idle(fields, pending)
    frozen = not problem and not fields.get(Field.REQUESTS) and fields.get(Field.SUMMARY_COUNT, 0.0) > 0

    def counter(name: Field, scale: float = 1.0) -> Signal:
        if quiet:
            return Idle("counters flat, nothing pending")
        if frozen:
            # With counter_latencies=false Triton stops all counters; the summary's count goes on.
            if name is Field.REQUESTS:
                return Value(fields[Field.SUMMARY_COUNT], age_s, "summary count; counters are switched off")
            return Unknown("the server runs with counter_latencies=false: its counters stand still")
        return signal(name, scale)

    return ModelRow(
        pod=pod,
        model=config.name,
        window_s=window_s,
        requests=counter(Field.REQUESTS),
        failures=counter(Field.FAILURES),
        executions=counter(Field.EXECUTIONS),
        inferences=counter(Field.INFERENCES),
        request_s=counter(Field.REQUEST_US, 1e-6),
        queue_s=counter(Field.QUEUE_US, 1e-6),
        compute_input_s=counter(Field.COMPUTE_INPUT_US, 1e-6),
        compute_infer_s=counter(Field.COMPUTE_INFER_US, 1e-6),
        compute_output_s=counter(Field.COMPUTE_OUTPUT_US, 1e-6),
        pending=pending,
        waited=waiting(Field.PENDING_LEAST),
        quantiles=measured.quantiles.get(key, {}),
        compute_quantiles=measured.compute_quantiles.get(key, {}),
        batches=_batches(live, config.name, window_s),
    )


def _problem(measured: Measurements, namespace: str, pod: str) -> str | None:
    if measured.failure:
        return measured.failure
    cover = measured.coverage.get((namespace, pod))
    if cover is None:
        return "Prometheus has no series of this pod"
    return cover.problem


def _is_idle(fields: Mapping[Field, float], pending: Signal) -> bool:
    flat = fields.get(Field.REQUESTS) == 0.0 and not fields.get(Field.FAILURES)
    silent = not fields.get(Field.SUMMARY_COUNT)  # an absent summary proves nothing either way
    return flat and silent and isinstance(pending, Value) and pending.value == 0


def _of_members(
    measured: Measurements, where: PodKey, config: ModelConfig, models: Mapping[str, ModelConfig], name: Field
) -> Signal:
    """An ensemble without a gauge of its own waits where its members wait. Once it finishes nothing, what waits for a
    member that goes on finishing requests is other ensembles' that share it.
    """
    stands = not measured.rows.get((*where, config.name), {}).get(Field.REQUESTS)
    total = 0.0
    for member in {s.model for s in config.steps if s.model in models}:
        fields = measured.rows.get((*where, member), {})
        if name not in fields:
            return Unknown(f"nv_inference_pending_request_count is not published for {member}")
        if not (stands and fields.get(Field.REQUESTS)):
            total += fields[name]
    return Value(total, source="pending of the members")


def _batches(live: LivePod | None, model: str, window_s: float) -> tuple[BatchTime, ...]:
    """Executions per batch size, brought from the time between two statistics to the row's window."""
    if live is None:
        return ()
    batches, span_s = live.batches.get(model, ((), 0.0))
    if span_s <= 0:
        return ()
    scale = window_s / span_s
    scaled = (BatchTime(b.size, round(b.executions * scale), b.mean_s) for b in batches)
    return tuple(b for b in scaled if b.executions > 0)
