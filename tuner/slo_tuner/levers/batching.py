"""Bounded dynamic batching of all forward models together, and the cap that keeps a full batch in time.

The delay is at most 10 ms, the pipeline's limit and a tenth of the SLO's slack. Delays whose predicted
p99 differ by under 1 % are equal, and the smallest of them wins: a delay shows in full in every
request that finds an instance free. It is never 0: Triton merges what queues behind busy instances
only when a delay is set.
"""

from __future__ import annotations

from dataclasses import replace

from slo_tuner.capacity.batches import steps_up
from slo_tuner.capacity.server import ServerModel
from slo_tuner.levers.base import Context, Proposal, forward_models
from slo_tuner.settings import Batching, ModelSettings, PodSettings

DELAYS_US = (1_000, 2_000, 5_000, 10_000)
TIE = 0.01


class DynamicBatching:
    name = "batching"
    price = 2

    def eligible(self, ctx: Context) -> str | None:
        if isinstance(ctx.model, str):
            return ctx.model
        models = forward_models(ctx)
        if not models:
            return "no forward model with traffic"
        able = [m for m in models if _why_not(ctx, m) is None]
        if not able:
            return "; ".join(f"{m}: {_why_not(ctx, m)}" for m in models)
        if not _delays(ctx, able):
            return "no slack for a delay: service time alone uses up the target or the limit is under 1 ms"
        return None

    def propose(self, ctx: Context) -> Proposal | None:
        model = ctx.queueing()
        able = [m for m in forward_models(ctx) if _why_not(ctx, m) is None]
        # judged with headroom: batching is there for the busiest moments
        scored = []
        for delay in _delays(ctx, able):
            settings = {m: _with_delay(ctx, model, m, delay) for m in able}
            scored.append((model.worst_ratio(model.predict(settings, growth=1.25)), delay, settings))
        best = min(s for s, _, _ in scored)
        _, delay, settings = next(s for s in scored if s[0] <= best * (1.0 + TIE))
        changed = {m: s for m, s in settings.items() if s != ctx.stable[m]}
        if not changed:
            return None
        guessed = [m for m in changed if model.curves[m].largest_measured == 1]
        note = f" (batch times above 1 extrapolated for {', '.join(guessed)})" if guessed else ""
        return Proposal(
            f"batches within {delay / 1e3:g} ms on {', '.join(changed)}{note}", _with_ensembles(ctx, changed)
        )


def _why_not(ctx: Context, name: str) -> str | None:
    config, s = ctx.view.models.get(name), ctx.stable[name]
    if s.max_batch_size == 0:
        return "batching not supported by this model (max_batch_size 0)"
    if s.max_batch_size == 1:
        return "max_batch_size is 1"
    if config is not None and config.sequence_batching:
        return "sequence batching: requests of a sequence must stay on their instance"
    if config is not None and config.decoupled:
        return "decoupled: the engine batches in flight"
    return None


def _delays(ctx: Context, models: list[str]) -> list[int]:
    model = ctx.queueing()
    limits, slack = [10_000], 1e9
    for p in model.pipelines:
        if any(m in models for m in p.members):
            limits.append(p.pipeline.max_queue_delay_us)
            service = sum(model.curves[m].seconds(1) for m in p.members)
            slack = min(slack, p.objective.target_s - service)
    highest = min(*limits, int(slack * 1e6 / 10))
    return [d for d in DELAYS_US if d <= highest]


def _with_delay(ctx: Context, model: ServerModel, name: str, delay_us: int) -> ModelSettings:
    now = ctx.stable[name]
    size = batch_cap(model, name, now.max_batch_size, ctx.policy.margin)
    return replace(now, max_batch_size=size, batching=Batching(delay_us, steps_up(model.curves[name], size)))


def batch_cap(model: ServerModel, name: str, present: int, margin: float) -> int:
    """The largest size ≤ the present and the pipeline's maximum at which a request that waits for one full batch and
    is in the next still meets the target with margin; never under the minimum.
    """
    pipelines = [p for p in model.pipelines if name in p.members]
    highest = min([present, *(p.pipeline.max_batch_size for p in pipelines)])
    lowest = max([1, *(p.pipeline.min_batch_size for p in pipelines)])
    servers = max(1, model.settings[name].instances)
    for size in range(highest, lowest, -1):
        full = model.curves[name].seconds(size)
        others = max(sum(model.curves[m].seconds(1) for m in p.members if m != name) for p in pipelines)
        target = min(p.objective.target_s for p in pipelines)
        if others + full * (1.0 + 0.5 / servers) <= (1.0 - margin) * target:
            return size
    return max(1, min(lowest, present))


def _with_ensembles(ctx: Context, changed: PodSettings) -> dict[str, ModelSettings]:
    """A member must not batch less than its ensemble accepts in one request: lower the ensemble with it."""
    out = dict(changed)
    for name, config in ctx.view.models.items():
        if not config.is_ensemble or name not in ctx.stable:
            continue
        caps = [changed[s.model].max_batch_size for s in config.steps if s.model in changed]
        now = ctx.stable[name]
        if caps and 0 < min(caps) < now.max_batch_size:
            out[name] = replace(now, max_batch_size=min(caps))
    return out
