"""More processes for a starved CPU stage, as long as the host has CPU left.

Sized once, for the burst peak with the load of a lost replica on top (N/(N−1), at least 1.5): the
smallest count that is at most 60 % busy then and adds no more than 5 % of the target to the p99. A
process costs memory while idle; sizing on the edge costs another reload at the next burst.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.capacity.pipeline import StageLoad, predict
from slo_tuner.capacity.server import ServerModel
from slo_tuner.diagnosis.rows import ModelTimes, number
from slo_tuner.levers.base import Context, Proposal
from slo_tuner.settings import ModelSettings

BUSY_GOAL = 0.6
WAIT_GOAL = 0.05


class PreprocessInstances:
    name = "preprocess_instances"
    price = 1

    def eligible(self, ctx: Context) -> str | None:
        if isinstance(ctx.model, str):
            return ctx.model
        models = _models(ctx)
        if not models:
            return "no preprocessing stage with traffic"
        limit = _limit(ctx)
        if all(ctx.stable[m].instances >= limit for m in models):
            return f"at the limit of {limit} processes"
        spare = _spare_cores(ctx)
        if spare is not None and spare < 1:
            return f"no CPU left: {_cpu(ctx)}"
        return None

    def propose(self, ctx: Context) -> Proposal | None:
        model, spare = ctx.queueing(), _spare_cores(ctx)
        changed: dict[str, ModelSettings] = {}
        why = []
        for m in _models(ctx):
            now = ctx.stable[m]
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
    """Smallest count for the burst peak with headroom (see module)."""
    headroom = max(1.5, model.pods / (model.pods - 1) if model.pods > 1 else 1.5)
    load = model.load(name, growth=headroom)
    target = min(p.objective.target_s for p in model.pipelines if name in p.members)
    for count in range(1, 257):
        stage = replace(model.stage(name, {}), servers=count)
        if load.peak_rps * stage.curve.seconds(1) / count > BUSY_GOAL:
            continue
        found = predict((StageLoad(stage, load),), load, 0.99, target)
        if found.quantile_s - stage.curve.seconds(1) <= WAIT_GOAL * target + stage.curve.seconds(1) * 0.1:
            return count
    return 256


def _models(ctx: Context) -> tuple[str, ...]:
    seen = dict.fromkeys(m for p in ctx.view.pipelines for m in p.preprocess)
    return tuple(m for m in seen if m in ctx.stable and isinstance(ctx.times.get(m), ModelTimes))


def _limit(ctx: Context) -> int:
    return min((p.max_preprocess_instances for p in ctx.view.pipelines if p.preprocess), default=1)


def _spare_cores(ctx: Context) -> float | None:
    """CPU limit − use of the pod with the least to spare; None when a pod's is unknown."""
    spare = []
    for pod in ctx.view.ready_pods:
        limit, used = number(pod.cpu_limit_cores), number(pod.cpu_used_cores)
        if limit is None or used is None:
            return None
        spare.append(limit - used)
    return min(spare) if spare else None


def _cpu(ctx: Context) -> str:
    return ", ".join(
        f"{p.name} uses {number(p.cpu_used_cores) or 0.0:.1f} of {number(p.cpu_limit_cores) or 0.0:.1f} cores"
        for p in ctx.view.ready_pods
    )
