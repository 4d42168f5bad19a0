"""More execution instances of the busiest forward model, where GPU compute is idle and memory fits.

Memory of one instance is taken as used ÷ loaded GPU instances, on the GPU with the least left: too much
rather than too little, since weights may be shared. One instance per GPU and step.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.diagnosis.rows import number
from slo_tuner.levers.base import Context, Proposal, forward_models

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
        model = ctx.queueing()
        name = max(forward_models(ctx), key=model.busy_at_peak)
        if model.busy_at_peak(name) < 0.3:
            return None
        now = ctx.stable[name]
        step = max(1, max((p.gpus for p in ctx.view.ready_pods), default=1))
        changed = {name: replace(now, instances=now.instances + step)}
        return Proposal(f"{name} {now.instances} → {now.instances + step} instances per pod", changed)


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
