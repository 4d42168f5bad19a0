"""The loop against the simulator: a clock, an actuator that carries decisions out, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slo_tuner.codec import memory_from_json, memory_to_json
from slo_tuner.decide import decide
from slo_tuner.decision import Decision
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.simulator.pipeline import Scenario, SimModel, SimPipeline, Simulation
from slo_tuner.simulator.view import observe, pipeline_of, pool_of
from slo_tuner.snapshot import Pipeline
from slo_tuner.stats import quantile

VARIANTS = (("small", 0.5), ("base", 0.3), ("large", 0.2))


def as_found(
    preprocess_s: float = 0.028, routing: str = "least", instances: int = 2, jitter: float = 0.25
) -> Scenario:
    """Two pods of two GPUs: one preprocessing process of 28 ms, forward 114 + 6 × batch ms, batching off."""
    forward = tuple(SimModel(f"forward-{v}", 0.114, 0.006, 0.01, 0.25) for v, _ in VARIANTS)
    models = (
        SimModel("preprocessing", preprocess_s, 0.0, jitter),
        *forward,
        SimModel("postprocessing", 0.002),
    )
    start = {m.name: ModelSettings(instances, 16) for m in forward}
    start["preprocessing"] = ModelSettings(1, 16)
    start["postprocessing"] = ModelSettings(2, 16)
    pipelines = tuple(
        SimPipeline(f"assistant-{v}", ("preprocessing", f"forward-{v}", "postprocessing"), share)
        for v, share in VARIANTS
    )
    return Scenario(models, pipelines, start, routing=routing)


def pipelines(p99_s: float = 0.3) -> tuple[Pipeline, ...]:
    return tuple(
        pipeline_of(f"assistant-{v}", "preprocessing", f"forward-{v}", "postprocessing", p99_s)
        for v, _ in VARIANTS
    )


@dataclass
class Loop:
    """Ticks every `interval_s`; a load takes `load_s` until it is live. Memory goes through its JSON each tick."""

    simulation: Simulation
    policy: Policy = field(
        default_factory=lambda: Policy(Mode.AUTO, analysis_s=45.0, interval_s=15.0, min_samples=200)
    )
    interval_s: float = 15.0
    load_s: float = 3.0
    memory: ServerMemory = field(default_factory=ServerMemory)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    loads: int = 0
    gateway: bool = True
    traces: bool = False

    def run(self, seconds: float) -> None:
        end = self.simulation.now + seconds
        while self.simulation.now < end:
            self.tick()

    def tick(self) -> Decision:
        now = self.simulation.now
        view = observe(self.simulation, pipelines(), gateway=self.gateway, traces=self.traces)
        view = replace(view, tuned=self.memory.stable)
        decision = decide(view, pool_of(self.simulation), self.memory, self.policy, now)
        self.memory = memory_from_json(memory_to_json(decision.memory))
        self.decisions.append((now, decision))
        self.simulation.run_until(now + self.load_s)
        if decision.stage_pool is not None:
            self.simulation.set_pool(decision.stage_pool.replicas, decision.stage_pool.stages)
        for pod, settings in decision.settings.items():
            self.loads += self.simulation.apply(
                pod, {k: v for k, v in settings.items() if k in self.simulation.settings(pod)}
            )
        self.simulation.run_until(now + self.interval_s)
        return decision

    @property
    def acted(self) -> list[tuple[float, Decision]]:
        return [(t, d) for t, d in self.decisions if d.acted]

    def p99(self, model: str, since: float) -> float:
        return quantile(
            [r.end - r.start for r in self.simulation.done if r.model == model and r.start >= since], 0.99
        )

    def worst_p99(self, since: float) -> float:
        return max(self.p99(f"assistant-{v}", since) for v, _ in VARIANTS)
