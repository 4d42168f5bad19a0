"""Random pipelines, simulated: the metrics pages that their servers would show, and where the time really went."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from slo_operator.offline.exposition import Page, Series
from slo_operator.offline.pages import Pair
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.simulator.pipeline import Scenario, SimModel, SimPipeline, SimRequest, Simulation
from slo_tuner.snapshot import EnsembleStep, ModelConfig

#: (stage, model): batching_delay, busy_wait, preprocess, forward or postprocess
Stage = tuple[str, str]
KINDS = ("preprocess", "forward", "postprocess")

_COUNTERS = {
    "requests": "nv_inference_request_success",
    "items": "nv_inference_count",
    "executions": "nv_inference_exec_count",
    "latency": "nv_inference_request_duration_us",
    "queue": "nv_inference_queue_duration_us",
    "input": "nv_inference_compute_input_duration_us",
    "infer": "nv_inference_compute_infer_duration_us",
    "output": "nv_inference_compute_output_duration_us",
}
FAMILIES = tuple(_COUNTERS)
Counts = dict[tuple[str, str], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline under load, watched for `seconds` after `before_s`. `reset`: (pod, model) that was loaded anew when
    this share of the window was over; `missing`: families that a model does not show.
    """

    scenario: Scenario
    rate_rps: float
    seed: int
    before_s: float
    seconds: float
    reset: tuple[str, str, float] | None = None
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def configs(self) -> dict[str, ModelConfig]:
        """What the repository says."""
        found = {m: ModelConfig(m, s) for m, s in self.scenario.start.items()}
        for pipeline in self.scenario.pipelines:
            steps = (EnsembleStep(m, (f"t{n}",), (f"t{n + 1}",)) for n, m in enumerate(pipeline.members))
            found[pipeline.model] = ModelConfig(pipeline.model, ModelSettings(1, 8), steps=tuple(steps))
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """The pages, and per client-facing model the mean of its requests (seconds) and that of each stage."""

    pairs: list[Pair]
    mean_s: Mapping[str, float]
    stages_s: Mapping[str, Mapping[Stage, float]]


def draw(seed: int) -> Case:
    """One of all cases: 1 to 3 pods, one or two pipelines over shared stages, batching or not, bursts or not."""
    r = random.Random(seed)
    forwards = ["forward"] if r.random() < 0.7 else ["forward", "forward-2"]
    names = ["preprocessing", *forwards, "postprocessing"]
    # the forward pass is the longest: without a repository it is told from the others by that
    longest = _between(r, 20, 200) / 1e3
    seconds = {m: longest * (1.0 if m in forwards else r.uniform(0.02, 0.8)) for m in names}
    start = {m: _settings(r, batches=m in forwards) for m in names}
    pods = tuple(f"pod-{n}" for n in range(r.randint(1, 3)))
    share = 1.0 if len(forwards) == 1 else r.uniform(0.3, 0.7)
    shares = dict(zip(forwards, (share, 1.0 - share), strict=False))
    burst = r.choice((1.0, 1.0, 1.3, 1.6))
    # how busy the busiest stage would be without batching; more would not be a steady state
    limits = (start[m].instances / seconds[m] / shares.get(m, 1.0) for m in names)
    rate = r.uniform(0.2, 0.85) / burst * min(limits) * len(pods)
    requests = _between(r, 250, 900)
    window = max(20.0, requests / rate)
    models = tuple(
        SimModel(m, seconds[m] * (1 - b), seconds[m] * b, r.choice((0.0, 0.2, 0.5)), gpu_share=0.0)
        for m in names
        for b in (r.uniform(0.03, 0.3),)
    )
    pipelines = tuple(
        SimPipeline(f"chat-{n}", ("preprocessing", f, "postprocessing"), shares[f])
        for n, f in enumerate(forwards)
    )
    scenario = Scenario(
        models, pipelines, start, pods, burst_factor=burst, burst_s=5.0, period_s=20.0,
        routing=r.choice(("least", "random")), cores_per_pod=64.0,
    )  # fmt: skip
    odd = r.random()
    reset = (r.choice(pods), r.choice(names), r.uniform(0.2, 0.8)) if odd < 0.15 else None
    missing = ((r.choice(names), r.choice(FAMILIES)),) if 0.15 <= odd < 0.3 else ()
    return Case(scenario, rate, seed, 1.3 * window, window, reset, missing)


def _between(r: random.Random, low: float, high: float) -> float:
    """Log-uniform: as likely from 2 to 4 as from 20 to 40."""
    return float(low * (high / low) ** r.random())


def _settings(r: random.Random, batches: bool) -> ModelSettings:
    batching = Batching(r.choice((0, 1_000, 5_000, 20_000))) if batches and r.random() < 0.6 else None
    return ModelSettings(r.randint(1, 4), r.choice((4, 8, 16)), batching)


def simulate(case: Case) -> Outcome:
    """Run it, and look at the counters twice."""
    begin, end = case.before_s, case.before_s + case.seconds
    simulation = Simulation(case.scenario, case.rate_rps, case.seed)
    simulation.run_until(end)
    # What is under way finishes, so that it is known; nothing of it shows on the second page.
    simulation.rate_rps = 1e-9
    simulation.run_until(end + 600.0)
    requests = simulation.done
    first, second = _counted(case, simulation, begin), _counted(case, simulation, end)
    if case.reset is not None:
        pod, model, share = case.reset
        lost = _counted(case, simulation, begin + share * case.seconds)[pod, model]
        second[pod, model] = {what: value - lost[what] for what, value in second[pod, model].items()}
    pairs = [Pair(p, _page(case, first, p), _page(case, second, p)) for p in case.scenario.pods]
    inside = [r for r in requests if begin < r.end <= end]
    busy = _Busy(case.scenario, simulation.executions)
    by_model = {p.model: [r for r in inside if r.model == p.model] for p in case.scenario.pipelines}
    return Outcome(
        pairs,
        {m: sum(r.end - r.start for r in rs) / len(rs) for m, rs in by_model.items() if rs},
        {m: _stages(rs, busy) for m, rs in by_model.items() if rs},
    )


class _Busy:
    """For how long all instances of a model on a pod were executing."""

    def __init__(self, scenario: Scenario, executions: Iterable[tuple[float, str, str, int, float]]) -> None:
        steps: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        for end, pod, model, _, seconds in executions:
            steps[pod, model] += [(end - seconds, 1), (end, -1)]
        self._spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for key, changes in steps.items():
            changes.sort()
            running = list(accumulate(change for _, change in changes))
            all_of_them = scenario.start[key[1]].instances
            self._spans[key] = [
                (t, following)
                for (t, _), (following, _), count in zip(changes, changes[1:], running, strict=False)
                if count >= all_of_them and following > t
            ]
        self._starts = {key: [t for t, _ in spans] for key, spans in self._spans.items()}

    def within(self, pod: str, model: str, begin: float, end: float) -> float:
        """Seconds of begin … end."""
        spans = self._spans.get((pod, model), [])
        at = max(0, bisect_right(self._starts.get((pod, model), []), begin) - 1)
        total = 0.0
        while at < len(spans) and spans[at][0] < end:
            total += max(0.0, min(end, spans[at][1]) - max(begin, spans[at][0]))
            at += 1
        return total


def _stages(requests: Sequence[SimRequest], busy: _Busy) -> dict[Stage, float]:
    """Mean seconds of each stage. A request that waits although an instance is free waits for company."""
    sums: dict[Stage, float] = defaultdict(float)
    for request in requests:
        at = request.start
        for kind, model in zip(KINDS, request.members, strict=True):
            waited, computed, _ = request.stages[model]
            for_instance = min(waited, busy.within(request.pod, model, at, at + waited))
            sums["busy_wait", model] += for_instance
            sums["batching_delay", model] += waited - for_instance
            sums[kind, model] += computed
            at += waited + computed
    return {stage: total / len(requests) for stage, total in sums.items()}


def _counted(case: Case, simulation: Simulation, until: float) -> Counts:
    """(pod, model) → counters at that time. Triton counts a request when it ends, in each model that it went through."""
    found: Counts = defaultdict(lambda: dict.fromkeys(FAMILIES, 0.0))
    for pod in case.scenario.pods:
        for model in case.configs:
            found[pod, model]
    for request in simulation.done:
        at, computing = request.start, 0.0
        for model in request.members:
            waited, computed, _ = request.stages[model]
            at += waited + computed
            computing += computed
            if at <= until:
                _add(found[request.pod, model], waited + computed, waited, computed)
        if request.end <= until:
            _add(found[request.pod, request.model], request.end - request.start, 0.0, computing)
            found[request.pod, request.model]["executions"] += 1
    for end, pod, model, _, _ in simulation.executions:
        if end <= until:
            found[pod, model]["executions"] += 1
    return found


def _add(row: dict[str, float], latency_s: float, queue_s: float, compute_s: float) -> None:
    row["requests"] += 1
    row["items"] += 1
    row["latency"] += 1e6 * latency_s
    row["queue"] += 1e6 * queue_s
    row["infer"] += 1e6 * compute_s


def _page(case: Case, counts: Counts, pod: str) -> Page:
    samples: dict[Series, float] = {}
    for (where, model), row in counts.items():
        for what, value in row.items():
            if where == pod and (model, what) not in case.missing:
                samples[_COUNTERS[what], (("model", model), ("version", "1"))] = round(value)
    return Page(samples=samples)
