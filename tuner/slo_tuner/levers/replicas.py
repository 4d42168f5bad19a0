"""More or fewer replicas: the queueing model on the load that each would get, never a threshold.

Up: the smallest number that meets every target with margin at the burst peak. Down: one step, and only
if the survivors meet every target with margin at their new load.
"""

from __future__ import annotations

from slo_tuner.capacity.server import ServerModel
from slo_tuner.levers.base import Context, Proposal


class Replicas:
    name = "replicas"
    price = 4

    def eligible(self, ctx: Context) -> str | None:
        view = ctx.view
        if isinstance(ctx.model, str) and ctx.stuck() <= 0:
            return ctx.model
        if view.desired_replicas >= view.max_replicas:
            return f"at the maximum of {view.max_replicas} replicas"
        if len(view.ready_pods) < view.desired_replicas:
            return f"{view.desired_replicas - len(view.ready_pods)} replicas are still starting"
        if not isinstance(ctx.model, str) and required_replicas(ctx, ctx.model) is None:
            return "more replicas do not bring the target: one request alone takes too long"
        if reachable(ctx) <= view.desired_replicas:
            return (
                f"no capacity: a replica needs {view.gpus_per_replica} GPUs, pool {ctx.pool.name} has "
                f"{ctx.pool.free_gpus} of {ctx.pool.limit_gpus} free"
            )
        return None

    def propose(self, ctx: Context) -> Proposal | None:
        present = ctx.view.desired_replicas
        # stuck and nothing measured: one more, then look again
        need = present + 1 if isinstance(ctx.model, str) else required_replicas(ctx, ctx.model)
        if need is None or need <= present:
            return None
        count = min(need, reachable(ctx))
        return Proposal(f"{ctx.view.desired_replicas} → {count} replicas", replicas=count)


def required_replicas(ctx: Context, model: ServerModel) -> int | None:
    """Smallest count up to the maximum that meets every target with margin; the maximum when more would be needed
    and each still helps; None when even an unloaded replica is too slow.
    """
    goal = 1.0 - ctx.policy.margin
    alone = model.predict(growth=1e-3)
    if model.worst_ratio(alone) > 1.0:
        return None
    for count in range(max(1, ctx.view.min_replicas), ctx.view.max_replicas + 1):
        if model.worst_ratio(model.predict(pods=count)) <= goal:
            return count
    return ctx.view.max_replicas


def reachable(ctx: Context) -> int:
    """Most replicas that the pool's free GPUs allow right now."""
    per = ctx.view.gpus_per_replica
    extra = ctx.pool.free_gpus // per if per > 0 else ctx.view.max_replicas
    return min(ctx.view.max_replicas, ctx.view.desired_replicas + extra)


def survivors_suffice(ctx: Context) -> bool:
    """Whether one replica less would meet every target with margin: load × N/(N−1) on the survivors."""
    left = ctx.view.desired_replicas - 1
    if isinstance(ctx.model, str) or left < max(1, ctx.view.min_replicas):
        return False
    rates = [p.pipeline.throughput_rps / p.rate_rps for p in ctx.model.pipelines if p.rate_rps > 0]
    growth = max(
        [1.0, *rates]
    )  # capacity promised in `throughput` is kept, whatever the traffic of the moment
    return ctx.model.worst_ratio(ctx.model.predict(pods=left, growth=growth)) <= 1.0 - ctx.policy.margin
