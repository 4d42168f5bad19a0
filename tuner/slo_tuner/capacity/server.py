"""The queueing model of one server: every stage with its measured service time, settings and load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slo_tuner.capacity.batches import BatchCurve, curve
from slo_tuner.capacity.demand import arrivals, peak_factor
from slo_tuner.capacity.pipeline import Prediction, StageLoad, predict
from slo_tuner.capacity.queueing import Load, Stage, utilisation
from slo_tuner.diagnosis.rows import ModelTimes, Times
from slo_tuner.objectives import Objective
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Idle
from slo_tuner.snapshot import Pipeline, ServerView
from slo_tuner.stats import mean, variance

DEFAULT_CV2 = 0.1


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """One pipeline: the members that requests wait for, the objective that binds, its share of the load."""

    pipeline: Pipeline
    members: tuple[str, ...]
    objective: Objective
    rate_rps: float


@dataclass(frozen=True, slots=True)
class ServerModel:
    """`loads` are totals over all pods, in requests/s by stage model; pods share them evenly."""

    pods: int
    peak: float
    settings: PodSettings
    curves: Mapping[str, BatchCurve]
    cv2: Mapping[str, float]
    loads: Mapping[str, float]
    pipelines: tuple[PipelineModel, ...]

    def stage(self, model: str, settings: PodSettings) -> Stage:
        s = settings.get(model) or self.settings[model]
        delay = s.batching.delay_us / 1e6 if s.batching is not None and s.max_batch_size > 1 else None
        return Stage(
            self.curves[model], max(1, s.instances), max(1, s.max_batch_size), delay, self.cv2[model]
        )

    def load(self, model: str, pods: int | None = None, growth: float = 1.0) -> Load:
        per_pod = _round(self.loads[model] * growth / max(1, pods or self.pods))
        return Load(per_pod, _round(per_pod * self.peak))

    def busy_at_peak(
        self, model: str, settings: PodSettings | None = None, pods: int | None = None, growth: float = 1.0
    ) -> float:
        """Instance time needed in a burst; above 1 the queue grows while it lasts."""
        return utilisation(self.stage(model, settings or {}), self.load(model, pods, growth).peak_rps)

    def predict(
        self, settings: PodSettings | None = None, pods: int | None = None, growth: float = 1.0
    ) -> dict[str, Prediction]:
        """By client-facing model, what is to be expected with these settings laid over the present ones."""
        changed = settings or {}
        found = {}
        for p in self.pipelines:
            stages = tuple(StageLoad(self.stage(m, changed), self.load(m, pods, growth)) for m in p.members)
            per_pod = _round(p.rate_rps * growth / max(1, pods or self.pods))
            level = p.objective.quantile if p.objective.quantile is not None else 0.5
            found[p.pipeline.model] = predict(
                stages, Load(per_pod, _round(per_pod * self.peak)), level, p.objective.target_s
            )
        return found

    def ratios(self, predictions: Mapping[str, Prediction]) -> dict[str, float]:
        """Predicted value ÷ target by pipeline; the mean where the objective is a mean."""
        return {
            p.pipeline.model: (
                predictions[p.pipeline.model].quantile_s
                if p.objective.quantile is not None
                else predictions[p.pipeline.model].mean_s
            )
            / p.objective.target_s
            for p in self.pipelines
        }

    def worst_ratio(self, predictions: Mapping[str, Prediction]) -> float:
        """The largest of `ratios`."""
        return max(self.ratios(predictions).values(), default=0.0)


def build(view: ServerView, times: Mapping[str, Times], settings: PodSettings) -> ServerModel | str:
    """The model, or why there is none (a stage unknown: then nothing is predicted)."""
    pods = len(view.ready_pods)
    if pods == 0:
        return "no pod is ready"
    pipelines: list[PipelineModel] = []
    loads: dict[str, float] = {}
    for p in view.pipelines:
        top = times.get(p.model)
        if isinstance(top, Idle) or top is None:
            continue
        rate = arrivals(view, p, top)
        objective = next((o for o in p.objectives if o.metric == "latency" and o.target_s > 0), None)
        if rate is None or not math.isfinite(rate) or objective is None:
            continue
        members = tuple(m for m in (*p.preprocess, *p.forward, *p.postprocess) if m in times) or (p.model,)
        missing = [m for m in members if not isinstance(times.get(m), ModelTimes | Idle) or m not in settings]
        if missing:
            return f"{missing[0]}: no usable counters or settings"
        members = tuple(m for m in members if isinstance(times[m], ModelTimes))
        if rate <= 0 or not members:
            continue
        pipelines.append(PipelineModel(p, members, objective, rate))
        for m in members:
            loads[m] = loads.get(m, 0.0) + rate
    if not pipelines:
        return "no pipeline with traffic and a latency objective"
    curves, cv2 = {}, {}
    for m in loads:
        t = times[m]
        if not isinstance(t, ModelTimes) or t.compute_s <= 0.0:
            return f"{m}: no compute time measured"
        c = curve(t.batches, t.compute_s)
        curves[m] = BatchCurve(tuple((b, _round_time(s)) for b, s in c.points))
        cv2[m] = _variation(view, m)
    return ServerModel(pods, peak_factor(view), settings, curves, cv2, loads, tuple(pipelines))


def _variation(view: ServerView, model: str) -> float:
    xs = [t.stages[model].compute_s for t in view.traces[-2000:] if model in t.stages]
    xs = [x for x in xs if math.isfinite(x) and x > 0]
    if len(xs) < 50:
        return DEFAULT_CV2
    return round(min(4.0, variance(xs) / mean(xs) ** 2), 2)


def _round(x: float) -> float:
    """To two significant digits: plans must not move, nor caches miss, with noise."""
    return float(f"{x:.2g}") if 0 < x < math.inf else 0.0


def _round_time(x: float) -> float:
    """Two and a half significant digits."""
    step = 10.0 ** (math.floor(math.log10(x)) - 1) / 2.0 if 0 < x < math.inf else 1.0
    return round(x / step) * step
