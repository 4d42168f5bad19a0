"""From measurements to a diagnosis: the same assessment that the loop makes, told as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from slo_operator.observe.measured import COUNTERS, REQUEST_SUMMARY, Field
from slo_operator.offline.pages import Remark
from slo_operator.offline.settle import would_settle
from slo_operator.offline.view import Question, configurations, server_view
from slo_tuner.assess import Picture, assess
from slo_tuner.attainment import usable_grid
from slo_tuner.decision import (
    Assessment,
    BottleneckReason,
    Breakdown,
    LeverAdvice,
    ObjectiveState,
    StageShare,
)
from slo_tuner.diagnosis.rows import ModelTimes, number
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.settings import ModelSettings, PodSettings
from slo_tuner.signal import Idle, Unknown
from slo_tuner.snapshot import ModelConfig, Pipeline, PoolView, ServerView

NO_SETTINGS: Final = "how many instances the models have is not known: give --repository"

Json = dict[str, Any]


def diagnose(question: Question) -> Json:
    """`{"window_s", "models": [...]}`; what is not known is None."""
    models, warnings = configurations(question)
    view = server_view(question, models)
    known = question.models is not None
    settings = {name: config.settings for name, config in models.items()} if known else {}
    picture = assess(
        view, PoolView("", 0, 0), ServerMemory(stable=settings), Policy(), settings, question.measured.at
    )
    told: dict[str, list[Remark]] = defaultdict(list)
    for remark in (*question.warnings, *warnings, *_unknown_members(picture, view)):
        told[remark.model].append(remark)
    breakdowns = {b.model: b for b in picture.assessment.breakdowns}
    # the ladder is the server's, the same for all of its models
    levers = [_lever(advice, view, known) for advice in picture.assessment.levers]
    found = [
        {**_model(picture, view, p, breakdowns.get(p.model), told, known), "levers": levers}
        for p in view.pipelines
    ]
    return {"window_s": round(question.measured.window_s, 3), "models": found}


def together(diagnoses: Sequence[Json]) -> Json:
    """Those of several servers as one; every model says which pods are its server's."""
    if len(diagnoses) == 1:
        return diagnoses[0]
    models = [model for one in diagnoses for model in one["models"]]
    return {"window_s": max(one["window_s"] for one in diagnoses), "models": models}


def missed(diagnosis: Json) -> bool:
    """Whether an objective of some model is missed."""
    return any(slo["state"] == "missed" for model in diagnosis["models"] for slo in model["slo"])


def _unknown_members(picture: Picture, view: ServerView) -> Iterator[Remark]:
    """Why a model's numbers are not believed."""
    for name, times in picture.context.times.items():
        if isinstance(times, Unknown) and view.rows_of(name):
            yield Remark("MetricsUnreliable", times.reason, name)


def _model(
    picture: Picture,
    view: ServerView,
    pipeline: Pipeline,
    breakdown: Breakdown | None,
    told: Mapping[str, Sequence[Remark]],
    known: bool,
) -> Json:
    times = picture.context.times[pipeline.model]
    assessment = picture.assessment
    active = times if isinstance(times, ModelTimes) else None
    names = ("", pipeline.model, *pipeline.preprocess, *pipeline.forward, *pipeline.postprocess)
    return {
        "model": pipeline.model,
        "pods": [pod.name for pod in view.pods],
        "state": "active" if active else "idle" if isinstance(times, Idle) else "unknown",
        "rate_rps": _rate(view, pipeline.model),
        # where nothing finished, requests have waited for the whole window so far, and nobody knows how long yet
        "mean_latency_ms": _ms(active.latency_s) if active and active.requests > 0 else None,
        "p99": _p99(view, pipeline.model),
        "mean_batch": _mean_batch(picture, pipeline),
        "breakdown": _breakdown(breakdown, known),
        "bottleneck": _bottleneck(assessment, pipeline, breakdown, known),
        "measurable": _measurable(view, pipeline, active is not None),
        "would_settle": would_settle(view, pipeline, breakdown, known) if active else [],
        "slo": [_slo(one) for one in assessment.objectives if one.model == pipeline.model],
        "warnings": [
            {"code": w.code, "message": w.message}
            for name in dict.fromkeys(names)
            for w in told.get(name, ())
        ],
    }


def _rate(view: ServerView, model: str) -> float | None:
    """Requests per second over all servers; counted even where their times cannot be believed."""
    total = 0.0
    for row in view.rows_of(model):
        finished = 0.0 if isinstance(row.requests, Idle) else number(row.requests)
        if finished is None:
            return None
        total += finished / row.window_s
    return _rounded(total)


def _breakdown(found: Breakdown | None, known: bool) -> list[Json]:
    """Without settings a batching delay cannot be told from waiting for an instance: both are `queue` then."""
    if found is None:
        return []
    return [
        {
            "stage": "queue" if one.kind == "busy_wait" and not known else one.kind,
            "model": one.model,
            "ms": _ms(one.mean_s),
            "share": round(one.share, 4),
            **_bounds(one),
        }
        for one in found.stages
    ]


def _bounds(one: StageShare) -> Json:
    if one.low_s is None or one.high_s is None:
        return {}
    return {"low": _ms(one.low_s), "high": _ms(one.high_s)}


def _bottleneck(
    assessment: Assessment, pipeline: Pipeline, breakdown: Breakdown | None, known: bool
) -> Json | None:
    found = assessment.bottleneck
    if found is None:
        return None
    if not known and found.reason is not BottleneckReason.NONE:
        waits = [one for one in (breakdown.stages if breakdown else ()) if one.kind == "busy_wait"]
        most = max(waits, key=lambda one: one.mean_s, default=None)
        where = f"requests wait most for {most.model}, {_ms(most.mean_s):g} ms; " if most else ""
        return {"reason": BottleneckReason.UNEXPLAINED.value, "message": where + NO_SETTINGS, "evidence": {}}
    return {"reason": found.reason.value, "message": found.message, "evidence": dict(found.evidence)}


def _lever(advice: LeverAdvice, view: ServerView, known: bool) -> Json:
    verdict = advice.verdict.value.lower()
    return {
        "lever": advice.lever,
        "verdict": verdict,
        "why": advice.why if known or verdict != "ineligible" else NO_SETTINGS,
        "setting": _setting(advice.settings, view) or None,
    }


def _setting(settings: PodSettings, view: ServerView) -> dict[str, str]:
    """What to write into each model's configuration."""
    return {name: written(wanted, view.models.get(name)) for name, wanted in sorted(settings.items())}


def written(wanted: ModelSettings, config: ModelConfig | None) -> str:
    """The part of a config.pbtxt that a lever sets, where it differs from the present one."""
    now = config.settings if config is not None else None
    lines = []
    if now is None or now.max_batch_size != wanted.max_batch_size:
        lines.append(f"max_batch_size: {wanted.max_batch_size}")
    if now is None or now.instances != wanted.instances:
        lines.append(f"instance_group [ {{ count: {wanted.instances} }} ]")
    if wanted.batching is not None and (now is None or now.batching != wanted.batching):
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {wanted.batching.delay_us} }}")
    return "\n".join(lines)


def _p99(view: ServerView, model: str) -> Json:
    """The server's own p99; of several servers the worst one's, which that of all cannot be above."""
    seen = [dict(grid).get(0.99) for r in view.rows_of(model) if (grid := usable_grid(r.quantiles))]
    values = [value for value in seen if value is not None]
    if not values or len(values) < len(view.pods):
        return {"ms": None, "source": None, "kind": "unknown"}
    kind = "value" if len(values) == 1 else "bound"
    return {"ms": _ms(max(values)), "source": REQUEST_SUMMARY, "kind": kind}


def _measurable(view: ServerView, pipeline: Pipeline, active: bool) -> Json:
    """By which family each kind of objective could be told; None where by none."""
    rows = view.rows_of(pipeline.model)
    levels = [{level for level, _ in usable_grid(r.quantiles)} for r in rows]
    common = set.intersection(*levels) if levels else set()
    found: Json = {"latency.mean": {"by": COUNTERS[Field.REQUEST_US] if active else None}}
    for level, name in ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99")):
        found[f"latency.{name}"] = {"by": REQUEST_SUMMARY if level in common else None}
    return found


def _slo(one: ObjectiveState) -> Json:
    states = {"Met": "met", "Missed": "missed", "Undecided": "undecided"}
    return {
        "objective": one.objective,
        "target": _ms(one.target_s),
        "observed": None if one.observed_s is None else _ms(one.observed_s),
        "state": states.get(one.state.value, "unknown"),
        "message": one.message,
    }


def _mean_batch(picture: Picture, pipeline: Pipeline) -> float | None:
    for name in pipeline.forward:
        times = picture.context.times.get(name)
        if isinstance(times, ModelTimes) and times.executions > 0:
            return round(times.batch_items, 2)
    return None


def _ms(seconds: float) -> float:
    return _rounded(1e3 * seconds)


def _rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
