"""MIG geometry: moved only by proven interference between models on one GPU, after every lever above."""

from __future__ import annotations

from slo_tuner.levers.base import Context, Proposal


class MigGeometry:
    name = "mig"
    price = 9

    def eligible(self, ctx: Context) -> str | None:
        if not ctx.view.mig_allowed:
            return "not indicated: the pool's policy does not allow MIG"
        busy = ctx.gpu_busy()
        shown = "unknown" if busy is None else f"{busy:.0%}"
        return (
            f"not indicated: no interference between models is proven (GPU activity {shown}); "
            "isolation would cure nothing"
        )

    def propose(self, ctx: Context) -> Proposal | None:
        return None
