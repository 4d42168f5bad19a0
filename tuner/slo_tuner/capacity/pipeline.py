"""A client-facing pipeline on one pod: the quantile of its latency under a load, and its mean.

Stages see the same burst at the same time, so their times are added within bursts and within quiet
times apart, and the two are mixed by their share of the arrivals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from slo_tuner.capacity.queueing import GRID_S, Load, Stage, convolve, sojourn, trim


@dataclass(frozen=True, slots=True)
class StageLoad:
    """A stage with all the traffic that it sees (of every pipeline that shares it)."""

    stage: Stage
    load: Load


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted quantile and mean in seconds, and the share of requests within the target."""

    quantile_s: float
    mean_s: float
    attainment: float


@lru_cache(maxsize=4096)
def predict(
    stages: tuple[StageLoad, ...], load: Load, quantile: float, target_s: float, fixed_s: float = 0.0
) -> Prediction:
    """Latency of a pipeline whose own traffic is `load`; `fixed_s` is time that no lever changes."""
    burst: list[float] = [1.0]
    quiet: list[float] = [1.0]
    for s in stages:
        times = sojourn(s.stage, s.load)
        burst, quiet = trim(convolve(burst, times.burst), 1e-6), trim(convolve(quiet, times.quiet), 1e-6)
    share = load.burst_s / load.period_s
    in_burst = share * load.peak_rps / max(1e-12, share * load.peak_rps + (1 - share) * load.quiet_rps)
    size = max(len(burst), len(quiet))
    mixed = [
        in_burst * (burst[i] if i < len(burst) else 0.0)
        + (1 - in_burst) * (quiet[i] if i < len(quiet) else 0.0)
        for i in range(size)
    ]
    reached, at = 0.0, float(size - 1)
    for i, p in enumerate(mixed):
        if reached + p >= quantile:
            at = i + ((quantile - reached) / p - 0.5 if p > 0 else 0.0)
            break
        reached += p
    mean = math.fsum(i * p for i, p in enumerate(mixed)) * GRID_S + fixed_s
    within = math.fsum(p for i, p in enumerate(mixed) if i * GRID_S + fixed_s <= target_s)
    return Prediction(max(0.0, at) * GRID_S + fixed_s, mean, min(1.0, within))
