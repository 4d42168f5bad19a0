"""What every lever is: eligible(view) → why not · propose(view) → setting · predict(view, setting) → effect · price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slo_tuner.capacity.pipeline import Prediction
from slo_tuner.capacity.server import ServerModel
from slo_tuner.diagnosis.rows import ModelTimes, Times, number
from slo_tuner.policy import Policy
from slo_tuner.settings import PodSettings
from slo_tuner.snapshot import PoolView, ServerView

#: predicted latency has to fall by this share; less is not worth a reload
MIN_GAIN = 0.03


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a lever may look at. `stable` are the settings of record; `model` is the queueing model, or
    the reason why there is none.
    """

    view: ServerView
    pool: PoolView
    policy: Policy
    times: Mapping[str, Times]
    stable: PodSettings
    model: ServerModel | str

    def queueing(self) -> ServerModel:
        """The queueing model; a lever that is not eligible without one may rely on it."""
        if isinstance(self.model, str):
            raise TypeError(f"no queueing model ({self.model}): ask whether the lever is eligible first")
        return self.model

    def stuck(self) -> float:
        """Requests that wait where none finished in the window: overload, whatever the counters say."""
        return sum(
            t.pending or 0.0 for t in self.times.values() if isinstance(t, ModelTimes) and t.requests == 0
        )

    def gpu_busy(self) -> float | None:
        """Mean engine activity over the ready pods' GPUs; None unless every GPU is known."""
        signals = [s for p in self.view.ready_pods for s in p.gpu_busy.values()]
        values = [number(s) for s in signals]
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a lever would set: settings of the changed models only, or a number of replicas. `pool_replicas` is what
    the pool must have first, where the settings move a stage there. `saves_s` is what the lever itself expects the
    objective's value to fall by, where the queueing model of the server cannot say: it ends at the server's door.
    """

    why: str
    settings: PodSettings = field(default_factory=dict)
    replicas: int | None = None
    pool_replicas: int | None = None
    saves_s: float = 0.0


class Lever(Protocol):
    """One lever. `price` orders the ladder: cheap first. `propose` is only asked when eligible."""

    name: str
    price: int

    def eligible(self, ctx: Context) -> str | None: ...

    def propose(self, ctx: Context) -> Proposal | None: ...


def effect(ctx: Context, proposal: Proposal) -> dict[str, Prediction] | None:
    """Predicted latency of every pipeline under a proposal; None without a queueing model."""
    if isinstance(ctx.model, str):
        return None
    return ctx.model.predict(proposal.settings, proposal.replicas)


def forward_models(ctx: Context) -> tuple[str, ...]:
    seen = dict.fromkeys(m for p in ctx.view.pipelines for m in p.forward)
    return tuple(m for m in seen if m in ctx.stable and isinstance(ctx.times.get(m), ModelTimes))
