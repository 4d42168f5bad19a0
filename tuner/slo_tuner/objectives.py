"""Service-level objectives and whether they are met."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objective:
    """`metric` (latency) at `quantile` must stay within `target_s`; quantile None means the mean."""

    metric: str
    quantile: float | None
    target_s: float

    @property
    def name(self) -> str:
        """The objective as people write it: latency.p99, latency.mean."""
        if self.quantile is None:
            return f"{self.metric}.mean"
        return f"{self.metric}.p{self.quantile * 100:g}"
