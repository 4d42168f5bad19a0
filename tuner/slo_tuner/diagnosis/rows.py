"""Counter rows → mean times per model, behind a plausibility gate.

A number that no machine could have produced is unknown, never a small latency: NaN and negative
increases, compute time beyond window × instances × batch, a decoupled row that covers only the
hand-off, a silent member under a busy ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slo_tuner.capacity.batches import merge
from slo_tuner.signal import Idle, Signal, Unknown, Value
from slo_tuner.snapshot import BatchTime, ModelConfig, ModelRow, ServerView

#: no decoupled (streaming) model answers a whole request faster than this: the row covers the hand-off
HANDOFF_FLOOR_S = 0.001


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """One model over all ready pods. Times are means per request, in seconds.

    `busy` is the share of instance time spent computing (1 = saturated); `exact_busy` says whether it
    comes from per-execution batch statistics or is the request-weighted upper bound.
    `complete` is False when a ready pod's row is missing: totals are then lower bounds.
    """

    model: str
    window_s: float
    pods: int
    requests: float
    failures: float
    executions: float
    inferences: float
    latency_s: float
    queue_s: float
    input_s: float
    infer_s: float
    output_s: float
    busy: float | None
    exact_busy: bool
    pending: float | None
    hit_share: float
    complete: bool
    batches: tuple[BatchTime, ...]

    @property
    def compute_s(self) -> float:
        return self.input_s + self.infer_s + self.output_s

    @property
    def rate_rps(self) -> float:
        return self.requests / self.window_s

    @property
    def batch_requests(self) -> float:
        """Mean batch in requests (success ÷ executions)."""
        return self.requests / self.executions if self.executions > 0 else 1.0

    @property
    def batch_items(self) -> float:
        """Mean batch in items (inference_count ÷ executions)."""
        return self.inferences / self.executions if self.executions > 0 else 1.0


Times = ModelTimes | Idle | Unknown


def model_times(view: ServerView, model: str) -> Times:
    """The model's mean times over the ready pods; Idle when proven so; Unknown with the reason."""
    pods = {p.name for p in view.ready_pods}
    rows = [r for r in view.rows_of(model) if r.pod in pods]
    if not rows:
        return Unknown(f"{model}: no counters from any of {len(pods)} ready pods")
    config = view.models.get(model)
    judged = [(r, implausible(r, config)) for r in rows]
    good = [r for r, why in judged if why is None]
    if not good:
        return Unknown(f"{model}: {next(why for _, why in judged if why)}")
    complete = len(good) == len(pods)
    busy_rows = [r for r in good if _number(r.requests) > 0]
    if not busy_rows:
        # Only what waited all the time is stuck: requests that have just begun to come have finished none either.
        stuck = [r for r in good if _number(r.pending) > 0 and _number(r.waited) > 0]
        if stuck:
            return _saturated(model, good, sum(_number(r.pending) for r in stuck), complete)
        if complete and all(isinstance(r.requests, Idle) or _proven_quiet(r) for r in good):
            return Idle(f"{model}: counters flat, nothing pending on {len(good)} pods")
        begun = sum(_number(r.pending) for r in good)
        waiting = f"{begun:.0f} have begun to wait" if begun else "pending is not known to be 0"
        return Unknown(f"{model}: no request finished and {waiting}")
    return _sum(model, busy_rows, config, complete, len(good))


def implausible(row: ModelRow, config: ModelConfig | None) -> str | None:
    """Why this row cannot be believed; None when it can (idle rows included)."""
    if isinstance(row.requests, Idle):
        return None
    if not math.isfinite(row.window_s) or row.window_s <= 0:
        return f"pod {row.pod}: window of {row.window_s} s"
    counters = (row.requests, row.request_s, row.queue_s, row.compute_infer_s)
    for name, signal in zip(("requests", "request time", "queue", "forward"), counters, strict=True):
        if isinstance(signal, Unknown):
            return f"pod {row.pod}: {name} unknown ({signal.reason})"
        if number(signal) is None and not isinstance(signal, Idle):
            return f"pod {row.pod}: {name} is not a non-negative number"
    requests, latency = _number(row.requests), _number(row.request_s)
    if requests <= 0:
        return None
    compute = sum(_number(s) for s in (row.compute_input_s, row.compute_infer_s, row.compute_output_s))
    ensemble = config is not None and config.is_ensemble
    if latency <= 0:
        return f"pod {row.pod}: {requests:.0f} requests took no time (latency counters off?)"
    if config is not None and config.decoupled and latency / requests < HANDOFF_FLOOR_S:
        return f"pod {row.pod}: {latency / requests * 1e6:.0f} us per request of a decoupled model is only the hand-off"
    if not ensemble and config is not None and config.settings_known:
        width = max(1, config.settings.instances) * max(1, config.settings.max_batch_size)
        ceiling = (row.window_s + compute / requests) * width * 1.1
        if compute > ceiling:
            return f"pod {row.pod}: {compute:.0f} s of compute in {row.window_s:.0f} s on {width} slots"
    return None


def number(signal: Signal) -> float | None:
    """A finite, non-negative value; None for everything else."""
    if isinstance(signal, Value) and math.isfinite(signal.value) and signal.value >= 0:
        return signal.value
    return None


def _number(signal: Signal) -> float:
    return number(signal) or 0.0


def _proven_quiet(row: ModelRow) -> bool:
    return number(row.requests) == 0.0 and number(row.pending) == 0.0


def _saturated(model: str, rows: Sequence[ModelRow], pending: float, complete: bool) -> ModelTimes:
    """Nothing finished but requests wait: an overloaded server, not an idle one (latency = at least the window)."""
    window = max(r.window_s for r in rows)
    return ModelTimes(
        model=model, window_s=window, pods=len(rows), requests=0.0, failures=sum(_number(r.failures) for r in rows),
        executions=0.0, inferences=0.0, latency_s=window, queue_s=window, input_s=0.0, infer_s=0.0, output_s=0.0,
        busy=1.0, exact_busy=False, pending=pending, hit_share=0.0, complete=complete, batches=(),
    )  # fmt: skip


def _sum(
    model: str, rows: Sequence[ModelRow], config: ModelConfig | None, complete: bool, pods: int
) -> ModelTimes:
    def total(signals: Sequence[Signal]) -> float:
        return math.fsum(_number(s) for s in signals)

    requests = total([r.requests for r in rows])
    window = max(r.window_s for r in rows)
    computed = [number(r.computed) for r in rows]
    known = [c for c in computed if c is not None]
    hits = max(0.0, requests - math.fsum(known)) if len(known) == len(rows) else 0.0
    executed = max(requests - hits, 1e-9)
    batches = merge([b for r in rows for b in r.batches])
    executions = total([r.executions for r in rows])
    compute = (
        total([r.compute_input_s for r in rows]),
        total([r.compute_infer_s for r in rows]),
        total([r.compute_output_s for r in rows]),
    )
    instances = pods * max(1, config.settings.instances) if config is not None else pods
    counted = config is None or config.settings_known
    busy: float | None = None
    exact = False
    if batches and counted:
        busy = math.fsum(b.executions * b.mean_s for b in batches) / (window * instances)
        exact = True
    elif executions > 0 and counted and not (config is not None and config.is_ensemble):
        busy = executions * sum(compute) / executed / (window * instances)
    pending = [number(r.pending) for r in rows]
    return ModelTimes(
        model=model,
        window_s=window,
        pods=pods,
        requests=requests,
        failures=total([r.failures for r in rows]),
        executions=executions,
        inferences=total([r.inferences for r in rows]),
        latency_s=total([r.request_s for r in rows]) / requests,
        queue_s=total([r.queue_s for r in rows]) / requests,
        input_s=compute[0] / executed,
        infer_s=compute[1] / executed,
        output_s=compute[2] / executed,
        busy=busy,
        exact_busy=exact,
        pending=math.fsum(p for p in pending if p is not None)
        if any(p is not None for p in pending)
        else None,
        hit_share=hits / requests,
        complete=complete,
        batches=batches,
    )
