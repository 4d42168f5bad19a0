"""What an operator would have seen of a simulated server: the same `ServerView` as from a real one."""

from __future__ import annotations

import math
from collections import defaultdict

from slo_tuner.objectives import Objective
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Signal, Unknown, Value
from slo_tuner.simulator.pipeline import SimRequest, Simulation
from slo_tuner.snapshot import (
    BatchTime,
    EnsembleStep,
    GatewayHistogram,
    LatencyBlock,
    ModelConfig,
    ModelRow,
    Pipeline,
    PodView,
    PoolView,
    RequestTrace,
    ServerView,
    StagePoolView,
    StageTime,
)

BOUNDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.27, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
BLOCK_S = 10.0


def observe(
    simulation: Simulation,
    pipelines: tuple[Pipeline, ...],
    window_s: float = 60.0,
    history_s: float = 600.0,
    traced_s: float = 120.0,
    traces: bool = True,
    gateway: bool = True,
    memory_used_mib: float = 36_000.0,
) -> ServerView:
    """The last `window_s` as counters and gateway histogram; `history_s` of blocks, `traced_s` of traces. Misses
    per pod are known where the gateway names the pod, as here, or where requests are traced.
    """
    s, now = simulation.scenario, simulation.now
    simulation.forget(now - max(history_s, window_s))
    recent = [r for r in simulation.done if r.end > now - window_s]
    past = [r for r in simulation.done if r.end > now - history_s]
    traced = [r for r in past if r.end > now - traced_s] if traces else []
    targets = {p.model: p.objectives[0].target_s for p in pipelines if p.objectives}
    window = min(window_s, max(now, 1.0))
    pods = tuple(_pod(simulation, pod, window, memory_used_mib) for pod in simulation.outstanding)
    return ServerView(
        namespace="serving",
        resource="assistant",
        name="chat",
        pool="a100",
        gpus_per_replica=s.gpus_per_pod,
        min_replicas=len(s.pods),
        max_replicas=4,
        desired_replicas=len(pods),
        managed=True,
        pods=pods,
        models=_configs(simulation),
        pipelines=pipelines,
        rows=tuple(_rows(simulation, recent, window)),
        traces=tuple(_trace(r) for r in traced),
        blocks=tuple(_blocks(past, targets, now, history_s, misses=gateway or traces)),
        gateway=tuple(_histogram(p, recent, window) for p in s_models(simulation)) if gateway else (),
        arrivals_rps={m: Value(sum(r.model == m for r in recent) / window) for m in s_models(simulation)},
        tuned={},
        stage_pool=_stage_pool(simulation, window),
    )


def _stage_pool(simulation: Simulation, window: float) -> StagePoolView | None:
    s = simulation.scenario
    if not s.pool_limit:
        return None
    seconds: dict[str, list[float]] = defaultdict(list)
    for end, model, spent in simulation.pool_executions:
        if simulation.now - window < end <= simulation.now:
            seconds[model].append(spent)
    return StagePoolView(
        max_replicas=s.pool_limit,
        processes=s.pool_processes,
        replicas=simulation.pool_replicas,
        ready=simulation.pool_replicas,
        stages=simulation.pool_stages,
        service_s={model: sum(xs) / len(xs) for model, xs in seconds.items()},
        network_s=Value(s.pool_network_s) if seconds else Unknown("nothing was forwarded"),
        local_share=Value(0.0) if seconds else Unknown("nothing was forwarded"),
    )


def pool_of(simulation: Simulation, limit: int = 4) -> PoolView:
    used = simulation.scenario.gpus_per_pod * len(simulation.outstanding)
    return PoolView("a100", limit, used)


def pipeline_of(
    model: str, preprocess: str, forward: str, postprocess: str, p99_s: float, **limits: int
) -> Pipeline:
    """A pipeline of three stages with one p99 objective."""
    return Pipeline(
        model=model,
        preprocess=(preprocess,),
        forward=(forward,),
        postprocess=(postprocess,),
        objectives=(Objective("latency", 0.99, p99_s),),
        max_batch_size=limits.get("max_batch_size", 16),
        max_queue_delay_us=limits.get("max_queue_delay_us", 10_000),
        max_preprocess_instances=limits.get("max_preprocess_instances", 8),
        window_s=60.0,
    )


def s_models(simulation: Simulation) -> tuple[str, ...]:
    return tuple(p.model for p in simulation.scenario.pipelines)


def _configs(simulation: Simulation) -> dict[str, ModelConfig]:
    s = simulation.scenario
    pod = next(iter(simulation.outstanding))
    live = simulation.settings(pod)
    configs = {m.name: ModelConfig(m.name, live[m.name], uses_gpu=m.gpu_share > 0.0) for m in s.models}
    for p in s.pipelines:
        steps = tuple(EnsembleStep(name, (f"t{i}",), (f"t{i + 1}",)) for i, name in enumerate(p.members))
        size = min(live[name].max_batch_size for name in p.members)
        configs[p.model] = ModelConfig(p.model, ModelSettings(1, size), steps=steps)
    return configs


def _pod(simulation: Simulation, pod: str, window: float, memory_mib: float) -> PodView:
    s, now = simulation.scenario, simulation.now
    gpus = [f"GPU-{pod}-{i}" for i in range(s.gpus_per_pod)]
    shares = {m.name: m.gpu_share for m in s.models}
    busy = sum(
        seconds * shares[name]
        for end, p, name, _, seconds in simulation.executions
        if p == pod and end > now - window
    ) / (window * s.gpus_per_pod)
    here = {m for m, settings in simulation.settings(pod).items() if settings.remote is None}
    host = s.other_cores + (
        sum(
            seconds
            for end, p, name, _, seconds in simulation.executions
            if p == pod and end > now - window and shares[name] == 0.0 and name in here
        )
        / window
    )
    return PodView(
        name=pod,
        ready=True,
        terminating=False,
        started=-1000.0,
        gpus=s.gpus_per_pod,
        settings=simulation.settings(pod),
        gpu_busy={g: Value(min(1.0, busy)) for g in gpus},
        gpu_memory_used_mib={g: Value(memory_mib) for g in gpus},
        gpu_memory_total_mib={g: Value(81_920.0) for g in gpus},
        cpu_used_cores=Value(host),
        cpu_limit_cores=Value(s.cores_per_pod),
    )


def _rows(simulation: Simulation, recent: list[SimRequest], window: float) -> list[ModelRow]:
    rows = []
    for pod in simulation.outstanding:
        mine = [r for r in recent if r.pod == pod]
        for p in s_models(simulation):
            latencies = [r.end - r.start for r in mine if r.model == p]
            rows.append(_row(pod, p, window, latencies, [], [], ()))
        for m in simulation.scenario.models:
            stages = [r.stages[m.name] for r in mine if m.name in r.stages]
            sizes: dict[int, list[float]] = defaultdict(list)
            for end, where, name, size, seconds in simulation.executions:
                if where == pod and name == m.name and end > simulation.now - window:
                    sizes[size].append(seconds)
            batches = tuple(BatchTime(b, len(t), sum(t) / len(t)) for b, t in sorted(sizes.items()))
            waits, computes = [w for w, _, _ in stages], [c for _, c, _ in stages]
            rows.append(
                _row(
                    pod,
                    m.name,
                    window,
                    [w + c for w, c in zip(waits, computes, strict=True)],
                    waits,
                    computes,
                    batches,
                )
            )
    return rows


def _row(
    pod: str, model: str, window: float, latencies: list[float], waits: list[float], computes: list[float],
    batches: tuple[BatchTime, ...],
) -> ModelRow:  # fmt: skip
    def value(x: float) -> Signal:
        return Value(x, 0.0, "simulation")

    ordered = sorted(latencies)
    levels = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
    slow = sorted(computes)

    def grid(xs: list[float]) -> dict[float, float]:
        return {q: xs[min(len(xs) - 1, math.ceil(q * len(xs)) - 1)] for q in levels} if len(xs) > 20 else {}

    return ModelRow(
        pod, model, window, value(len(latencies)), value(0.0),
        value(sum(b.executions for b in batches)), value(len(latencies)), value(sum(latencies)), value(sum(waits)),
        value(0.0), value(sum(computes)), value(0.0), value(0.0), quantiles=grid(ordered), compute_quantiles=grid(slow),
        batches=batches,
    )  # fmt: skip


def _trace(r: SimRequest) -> RequestTrace:
    return RequestTrace(
        r.pod, r.model, r.start, r.end - r.start, {m: StageTime(w, c) for m, (w, c, _) in r.stages.items()}
    )


def _blocks(
    past: list[SimRequest], targets: dict[str, float], now: float, history_s: float, misses: bool
) -> list[LatencyBlock]:
    """Blocks by time of completion, as counters give them; only whole blocks."""
    cells: dict[tuple[str, str, int], list[SimRequest]] = defaultdict(list)
    for r in past:
        cells[r.pod, r.model, math.floor(r.end / BLOCK_S)].append(r)
    first, last = math.ceil(max(0.0, now - history_s) / BLOCK_S), math.floor(now / BLOCK_S)
    return [
        _block(pod, model, k, cell, targets[model], misses)
        for (pod, model, k), cell in sorted(cells.items())
        if first <= k < last
    ]


def _block(
    pod: str, model: str, k: int, cell: list[SimRequest], target_s: float, misses: bool
) -> LatencyBlock:
    latencies = [r.end - r.start for r in cell]
    sums: dict[str, float] = defaultdict(float)
    for r in cell:
        for member, (waited, computed, _) in r.stages.items():
            sums[member] += waited + computed
    over = float(sum(x > target_s for x in latencies)) if misses else None
    return LatencyBlock(
        pod, model, k * BLOCK_S, BLOCK_S, len(cell), sum(latencies), 0.0, over, stage_sums_s=dict(sums)
    )


def _histogram(model: str, recent: list[SimRequest], window: float) -> GatewayHistogram:
    xs = [r.end - r.start for r in recent if r.model == model]
    buckets = tuple((b, float(sum(x <= b for x in xs))) for b in (*BOUNDS, math.inf))
    return GatewayHistogram(model, window, buckets, 0.0, "gateway histogram")
