"""More processes for a starved CPU stage, as long as the host has CPU left.

Sized once, for the burst peak with the load of a lost replica on top (N/(N−1), at least 1.5): the
smallest count that is at most 60 % busy then and adds no more than 5 % of the target to the p99. A
process costs memory while idle; sizing on the edge costs another reload at the next burst.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.capacity.pipeline import StageLoad, predict
from slo_tuner.capacity.queueing import Load, Stage
from slo_tuner.capacity.server import ServerModel
from slo_tuner.diagnosis.bottleneck import STARVED_AT_PEAK
from slo_tuner.diagnosis.rows import ModelTimes, number
from slo_tuner.levers.base import Context, Proposal
from slo_tuner.settings import ModelSettings

BUSY_GOAL = 0.6
WAIT_GOAL = 0.05
LEAST_HEADROOM = 1.5
MOST_PROCESSES = 256


class PreprocessInstances:
    name = "preprocess_instances"
    price = 1

    def eligible(self, ctx: Context) -> str | None:
        if isinstance(ctx.model, str):
            return ctx.model
        models = stages(ctx)
        if not models:
            return "no preprocessing stage with traffic"
        if all(ctx.stable[m].remote is not None for m in models):
            return "every preprocessing stage runs in the pool"
        limit = _limit(ctx)
        if all(ctx.stable[m].instances >= limit for m in models):
            return f"at the limit of {limit} processes"
        spare = spare_cores(ctx)
        if spare is not None and spare < 1:
            return f"no CPU left: {cpu(ctx)}"
        return None

    def propose(self, ctx: Context) -> Proposal | None:
        model, spare = ctx.queueing(), spare_cores(ctx)
        changed: dict[str, ModelSettings] = {}
        why = []
        for m in stages(ctx):
            now = ctx.stable[m]
            if now.remote is not None:
                continue
            need = required_instances(model, m)
            # host use unknown: at most double per change, the canary then says whether the host carries it
            room = 2 * now.instances + 2 if spare is None else now.instances + int(spare)
            count = min(need, _limit(ctx), room)
            if count > now.instances:
                changed[m] = replace(now, instances=count)
                peak = model.load(m).peak_rps * model.curves[m].seconds(1)
                why.append(
                    f"{m} {now.instances} → {count} processes: a burst asks for {peak:.1f} of {now.instances} per pod"
                )
        return Proposal("; ".join(why), changed) if changed else None


def required_instances(model: ServerModel, name: str) -> int:
    """Smallest count per pod for the burst peak with headroom (see module)."""
    headroom = max(LEAST_HEADROOM, model.pods / (model.pods - 1) if model.pods > 1 else LEAST_HEADROOM)
    return smallest_count(model, name, model.load(name, growth=headroom), model.stage(name, {}))


def smallest_count(model: ServerModel, name: str, load: Load, stage: Stage) -> int:
    """Processes of the stage that take this load, busy and waited for as the module says."""
    target = min(p.objective.target_s for p in model.pipelines if name in p.members)
    alone = stage.curve.seconds(1)
    for count in range(1, MOST_PROCESSES):
        if load.peak_rps * alone / count > BUSY_GOAL:
            continue
        found = predict((StageLoad(replace(stage, servers=count), load),), load, 0.99, target)
        if found.quantile_s - alone <= WAIT_GOAL * target + alone * 0.1:
            return count
    return MOST_PROCESSES


def stages(ctx: Context) -> tuple[str, ...]:
    """CPU stages that more processes may help: preprocessing, and postprocessing where it is starved, too."""
    before = dict.fromkeys(m for p in ctx.view.pipelines for m in p.preprocess)
    after = dict.fromkeys(m for p in ctx.view.pipelines for m in p.postprocess)
    known = [m for m in {**before, **after} if m in ctx.stable and isinstance(ctx.times.get(m), ModelTimes)]
    return tuple(m for m in known if m in before or _starved(ctx, m))


def _starved(ctx: Context, name: str) -> bool:
    config = ctx.view.models.get(name)
    if config is None or config.uses_gpu or isinstance(ctx.model, str) or name not in ctx.model.loads:
        return False
    return ctx.stable[name].remote is not None or ctx.model.busy_at_peak(name) >= STARVED_AT_PEAK


def _limit(ctx: Context) -> int:
    return min((p.max_preprocess_instances for p in ctx.view.pipelines if p.preprocess), default=1)


def spare_cores(ctx: Context) -> float | None:
    """CPU limit − use of the pod with the least to spare; None when a pod's is unknown."""
    spare = []
    for pod in ctx.view.ready_pods:
        limit, used = number(pod.cpu_limit_cores), number(pod.cpu_used_cores)
        if limit is None or used is None:
            return None
        spare.append(limit - used)
    return min(spare) if spare else None


def cpu(ctx: Context) -> str:
    return ", ".join(
        f"{p.name} uses {number(p.cpu_used_cores) or 0.0:.1f} of {number(p.cpu_limit_cores) or 0.0:.1f} cores"
        for p in ctx.view.ready_pods
    )
