"""CPU time of one decision, and how it grows with what is looked at.

The server is the demo's, as found and under its bursty load, in the tuner's own simulator: two pods,
three pipelines over a shared preprocessing stage. CPU time of this process, median of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from benchmarks.figure import Figure
from slo_tuner.decide import decide
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.simulator.pipeline import Scenario, SimModel, SimPipeline, Simulation
from slo_tuner.simulator.view import observe, pipeline_of, pool_of
from slo_tuner.snapshot import ServerView

VARIANTS = (("small", 0.5), ("base", 0.3), ("large", 0.2))
INTERVAL_S = 15.0


def figures(runs: int = 9) -> Iterator[Figure]:
    """Milliseconds per decision with and without traces, and what one core can carry."""
    simulation = as_found()
    simulation.run_until(300.0)
    policy = Policy(Mode.RECOMMEND)
    pipelines = tuple(
        pipeline_of(f"assistant-{v}", "preprocessing", f"forward-{v}", "postprocessing", 0.3)
        for v, _ in VARIANTS
    )
    plain = observe(simulation, pipelines, traces=False)
    traced = observe(simulation, pipelines, traces=True)
    pool = pool_of(simulation)

    def cost(view: ServerView) -> float:
        spent = []
        for _ in range(runs):
            began = time.process_time()
            decide(view, pool, ServerMemory(), policy, simulation.now)
            spent.append(time.process_time() - began)
        return median(spent)

    without, with_traces = cost(plain), cost(traced)
    subject = "decision"
    yield Figure(subject, "one server, counters and histogram", without * 1e3, "ms")
    yield Figure(subject, f"the same with {len(traced.traces):,} traces", with_traces * 1e3, "ms")
    yield Figure(
        subject, "servers that one core decides per tick", INTERVAL_S / with_traces, "", "interval 15 s"
    )
    half = replace(traced, traces=traced.traces[len(traced.traces) // 2 :])
    growth = with_traces / cost(half)
    yield Figure(
        subject, "cost with twice the traces", growth, "×", "2 or less: it grows no faster than what is read"
    )


def as_found(rate_rps: float = 40.0) -> Simulation:
    """One preprocessing process of 28 ms per pod, forward 114 + 6 × batch ms, batching off."""
    forward = tuple(SimModel(f"forward-{v}", 0.114, 0.006, 0.01, 0.25) for v, _ in VARIANTS)
    models = (SimModel("preprocessing", 0.028, 0.0, 0.25), *forward, SimModel("postprocessing", 0.002))
    start = {model.name: ModelSettings(2, 16) for model in forward}
    start["preprocessing"] = ModelSettings(1, 16)
    start["postprocessing"] = ModelSettings(2, 16)
    pipelines = tuple(
        SimPipeline(f"assistant-{v}", ("preprocessing", f"forward-{v}", "postprocessing"), share)
        for v, share in VARIANTS
    )
    return Simulation(Scenario(models, pipelines, start), rate_rps, seed=1)
