"""More execution instances of the forward models that hold the SLO up, where GPU compute is idle and memory fits.

The pipelines within the policy's margin of the worst one are raised together: raising the worst alone makes the
next one the worst, a few milliseconds lower, and costs the same reload. One instance per GPU and step.

Memory of one instance is taken as used ÷ loaded GPU instances, on the GPU with the least left: too much
rather than too little, since weights may be shared.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.diagnosis.rows import number
from slo_tuner.levers.base import MIN_GAIN, Context, Proposal, forward_models
from slo_tuner.settings import ModelSettings

BUSY_LIMIT = 0.7
MEMORY_LIMIT = 0.9


class ForwardInstances:
    name = "instances"
    price = 3

    def eligible(self, ctx: Context) -> str | None:
        if isinstance(ctx.model, str):
            return ctx.model
        if not forward_models(ctx):
            return "no forward model with traffic"
        busy = ctx.gpu_busy()
        if busy is None:
            return "GPU activity unknown"
        if busy > BUSY_LIMIT:
            return f"GPUs are {busy:.0%} busy: another instance would only share them"
        each, free = _memory(ctx)
        if each is None or free is None:
            return "GPU memory unknown"
        if each > free:
            left = max(0.0, free) / 1024
            return f"no GPU memory: an instance takes about {each / 1024:.1f} GiB, {left:.1f} GiB are free"
        return None

    def propose(self, ctx: Context) -> Proposal | None:
        each, free = _memory(ctx)
        step = max(1, max((p.gpus for p in ctx.view.ready_pods), default=1))
        changed: dict[str, ModelSettings] = {}
        for name in _candidates(ctx):
            more = replace(ctx.stable[name], instances=ctx.stable[name].instances + step)
            fits = each is not None and free is not None and (len(changed) + 1) * each <= free
            if fits and _gains(ctx, name, more):
                changed[name] = more
        if not changed:
            return None
        steps = ", ".join(f"{n} {ctx.stable[n].instances} → {s.instances}" for n, s in changed.items())
        return Proposal(f"{steps} instances per pod", changed)


def _candidates(ctx: Context) -> list[str]:
    """Forward models of the pipelines within the margin of the worst prediction, the worst pipeline's first."""
    model = ctx.queueing()
    ratios = model.ratios(model.predict())
    worst = max(ratios.values())
    near = [p for p in model.pipelines if ratios[p.pipeline.model] >= worst * (1.0 - ctx.policy.margin)]
    near.sort(key=lambda p: -ratios[p.pipeline.model])
    known = forward_models(ctx)
    return list(dict.fromkeys(m for p in near for m in p.members if m in known))


def _gains(ctx: Context, name: str, more: ModelSettings) -> bool:
    """Whether some pipeline through this model is predicted to get 3 % faster by it."""
    model = ctx.queueing()
    before, after = model.predict(), model.predict({name: more})
    return any(
        after[m].quantile_s <= before[m].quantile_s * (1.0 - MIN_GAIN)
        or after[m].mean_s <= before[m].mean_s * (1.0 - MIN_GAIN)
        for m in (p.pipeline.model for p in model.pipelines if name in p.members)
    )


def _memory(ctx: Context) -> tuple[float | None, float | None]:
    """(MiB per instance, MiB free under the limit), for the tightest GPU."""
    loaded = sum(
        max(1, ctx.stable[n].instances)
        for n, c in ctx.view.models.items()
        if c.uses_gpu and not c.is_ensemble and n in ctx.stable
    )
    each: float | None = None
    free: float | None = None
    for pod in ctx.view.ready_pods:
        for gpu, signal in pod.gpu_memory_used_mib.items():
            used, total = number(signal), number(pod.gpu_memory_total_mib.get(gpu, signal))
            if used is None or total is None or gpu not in pod.gpu_memory_total_mib or loaded == 0:
                return None, None
            per_gpu = max(1.0, loaded / max(1, pod.gpus or len(pod.gpu_memory_used_mib)))
            each = max(each or 0.0, used / per_gpu)
            left = MEMORY_LIMIT * total - used
            free = left if free is None else min(free, left)
    return each, free
