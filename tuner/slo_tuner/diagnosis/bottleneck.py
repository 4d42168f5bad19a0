"""The one thing to look at first, told apart by numbers.

Upstream first: a starved CPU stage holds back and smooths what the GPU sees, and it is the cheapest to
cure. Each rule has its numbers in the evidence; nothing fits → Unexplained, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slo_tuner.capacity.server import ServerModel
from slo_tuner.decision import Bottleneck, BottleneckReason, Breakdown, ObjectiveState, SLOState
from slo_tuner.diagnosis.rows import ModelTimes, Times, number
from slo_tuner.snapshot import Pipeline, ServerView

STARVED_AT_PEAK = 0.7
SATURATED_AT_PEAK = 0.75
R = BottleneckReason


def find(
    view: ServerView,
    breakdowns: Sequence[Breakdown],
    objectives: Sequence[ObjectiveState],
    times: Mapping[str, Times],
    model: ServerModel | str,
    gpu_busy: float | None,
) -> Bottleneck | None:
    """The bottleneck of the pipeline that is furthest over its target; None when nothing is known."""
    stuck = [
        t for t in times.values() if isinstance(t, ModelTimes) and t.requests == 0 and (t.pending or 0) > 0
    ]
    if stuck:
        t = stuck[0]
        return Bottleneck(
            R.INSTANCE_SATURATED, t.model,
            f"{t.pending:.0f} requests wait for {t.model} and none finished in {t.window_s:.0f} s",
            {"pending": t.pending or 0.0, "finished": 0.0},
        )  # fmt: skip
    if not breakdowns:
        return None
    if objectives and all(o.state in (SLOState.MET, SLOState.IDLE) for o in objectives):
        return Bottleneck(R.NONE, breakdowns[0].model, "every objective is met")
    worst = _worst(breakdowns, objectives)
    pipeline = next((p for p in view.pipelines if p.model == worst.model), None)
    if pipeline is None or isinstance(model, str):
        return Bottleneck(
            R.UNEXPLAINED,
            worst.model,
            f"no queueing model: {model}" if isinstance(model, str) else "no pipeline",
        )
    numbers = _numbers(worst, gpu_busy)
    target = next((o.target_s for o in objectives if o.model == worst.model), math.inf)
    return (
        _infeasible(worst, pipeline, model, times, target, numbers)
        or _imbalanced(view, worst, numbers)
        or _starved(worst, pipeline, model, times, numbers)
        or _saturated(view, worst, pipeline, model, times, numbers)
        or _largest_wait(worst, pipeline, numbers, objectives)
    )


def _worst(breakdowns: Sequence[Breakdown], objectives: Sequence[ObjectiveState]) -> Breakdown:
    def over(b: Breakdown) -> float:
        ratios = [
            o.observed_s / o.target_s
            for o in objectives
            if o.model == b.model and o.observed_s and o.target_s > 0
        ]
        return max(ratios, default=0.0)

    return max(breakdowns, key=lambda b: (over(b), b.mean_s))


def _numbers(b: Breakdown, gpu_busy: float | None) -> dict[str, float]:
    found = {"mean_ms": _ms(b.mean_s)}
    for kind in ("batching_delay", "busy_wait", "preprocess", "forward", "postprocess", "unexplained"):
        found[f"{kind}_ms"] = _ms(sum(s.mean_s for s in b.stages if s.kind == kind))
    if b.forward_p99_s is not None:
        found["forward_p99_ms"] = _ms(b.forward_p99_s)
    if b.outside_gpu_s is not None:
        found["outside_gpu_ms"] = _ms(b.outside_gpu_s)
    if gpu_busy is not None:
        found["gpu_busy"] = round(gpu_busy, 2)
    return found


def _infeasible(
    b: Breakdown,
    pipeline: Pipeline,
    model: ServerModel,
    times: Mapping[str, Times],
    target: float,
    numbers: dict[str, float],
) -> Bottleneck | None:
    """Even alone a request takes longer than the target, and the queues are empty: replicas cannot help."""
    members = [m for p in model.pipelines if p.pipeline.model == b.model for m in p.members]
    alone = sum(model.curves[m].seconds(1) for m in members)
    queued = sum(s.mean_s for s in b.stages if s.kind in ("busy_wait", "batching_delay"))
    if alone > target and queued < 0.2 * b.mean_s:
        return Bottleneck(
            R.SLO_INFEASIBLE, b.model,
            f"one request alone takes {_ms(alone):.0f} ms of {_ms(target):.0f} ms allowed, "
            f"with {_ms(queued):.0f} ms of queue",
            {**numbers, "alone_ms": _ms(alone)},
        )  # fmt: skip
    return None


def _imbalanced(view: ServerView, b: Breakdown, numbers: dict[str, float]) -> Bottleneck | None:
    """One pod gets far more than its share and is the slow one: connections are balanced, requests are not."""
    pods = {p.name for p in view.ready_pods}
    rows = [r for r in view.rows_of(b.model) if r.pod in pods and number(r.requests) is not None]
    rates = {r.pod: number(r.requests) or 0.0 for r in rows}
    if len(rates) < 2 or sum(rates.values()) < 100:
        return None
    most, least = max(rates, key=lambda p: rates[p]), min(rates, key=lambda p: rates[p])
    if rates[most] > 2.0 * max(rates[least], 1.0):
        share = rates[most] / sum(rates.values())
        return Bottleneck(
            R.LOAD_IMBALANCED, b.model,
            f"{most} gets {share:.0%} of the requests, {least} {rates[least] / sum(rates.values()):.0%}: "
            "put a least-request gateway in front",
            {**numbers, "largest_share": round(share, 2)},
        )  # fmt: skip
    return None


def _starved(
    b: Breakdown,
    pipeline: Pipeline,
    model: ServerModel,
    times: Mapping[str, Times],
    numbers: dict[str, float],
) -> Bottleneck | None:
    for name in pipeline.preprocess:
        t = times.get(name)
        if not isinstance(t, ModelTimes) or name not in model.curves:
            continue
        peak = model.busy_at_peak(name)
        wait = sum(s.mean_s for s in b.stages if s.model == name and s.kind == "busy_wait")
        if peak >= STARVED_AT_PEAK and wait >= 0.05 * b.mean_s:
            rate = model.load(name).mean_rps
            return Bottleneck(
                R.PREPROCESS_STARVED, name,
                f"{name}: {model.settings[name].instances} process(es) of {_ms(t.compute_s):.0f} ms per pod "
                f"at {rate:g} rps, {peak:.0%} busy in bursts; requests wait {_ms(wait):.0f} ms there",
                {
                    **numbers,
                    "service_ms": _ms(t.compute_s),
                    "instances": float(model.settings[name].instances),
                    "rate_rps": rate,
                    "busy_at_peak": round(peak, 2),
                    "wait_ms": _ms(wait),
                },
            )  # fmt: skip
    return None


def _saturated(
    view: ServerView,
    b: Breakdown,
    pipeline: Pipeline,
    model: ServerModel,
    times: Mapping[str, Times],
    numbers: dict[str, float],
) -> Bottleneck | None:
    for name in (*pipeline.forward, *pipeline.postprocess):
        if name not in model.curves:
            continue
        peak, s = model.busy_at_peak(name), model.settings[name]
        wait = sum(x.mean_s for x in b.stages if x.model == name and x.kind == "busy_wait")
        if peak < SATURATED_AT_PEAK or wait < 0.05 * b.mean_s:
            continue
        found = {
            **numbers,
            "busy_at_peak": round(peak, 2),
            "instances": float(s.instances),
            "wait_ms": _ms(wait),
        }
        config = view.models.get(name)
        fit = config is None or not (config.sequence_batching or config.decoupled)
        told = (
            f"{name}: {s.instances} instances are {peak:.0%} busy in bursts, requests wait {_ms(wait):.0f} ms"
        )
        if name in pipeline.postprocess:
            return Bottleneck(R.INSTANCE_SATURATED, name, told, found)
        if s.batching is None and s.max_batch_size > 1 and fit:
            return Bottleneck(R.BATCHING_OFF, name, f"{told}; dynamic batching is off", found)
        if numbers.get("gpu_busy", 0.0) > 0.85:
            return Bottleneck(
                R.REPLICAS_SHORT, name, f"{told}; the GPUs are {numbers['gpu_busy']:.0%} busy", found
            )
        return Bottleneck(R.INSTANCE_SATURATED, name, told, found)
    return None


def _largest_wait(
    b: Breakdown, pipeline: Pipeline, numbers: dict[str, float], objectives: Sequence[ObjectiveState]
) -> Bottleneck:
    if not any(o.state in (SLOState.MISSED, SLOState.UNDECIDED) for o in objectives):
        return Bottleneck(R.NONE, b.model, "no objective is missed", numbers)
    waits = [s for s in b.stages if s.kind == "busy_wait"]
    largest = max(waits, key=lambda s: s.mean_s, default=None)
    if largest is None or largest.mean_s < 0.15 * b.mean_s:
        return Bottleneck(R.UNEXPLAINED, b.model, "no stage's queue explains the latency", numbers)
    reason = R.PREPROCESS_STARVED if largest.model in pipeline.preprocess else R.INSTANCE_SATURATED
    found = {**numbers, "wait_ms": _ms(largest.mean_s)}
    return Bottleneck(
        reason, largest.model, f"requests wait {_ms(largest.mean_s):.0f} ms for {largest.model}", found
    )


def _ms(seconds: float) -> float:
    """Milliseconds to two or three significant digits: evidence should not change with every tick's noise."""
    ms = seconds * 1e3
    return round(ms) if ms >= 10 else round(ms, 1)
