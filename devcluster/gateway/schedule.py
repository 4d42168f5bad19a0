"""When requests arrive, and for which model: pure and seeded.

Arrivals come in periods. Within a period the intensity is piecewise constant: `factor` × the mean for
`burst_s` seconds, and lower for the rest, so that the mean over a period is the wanted rate. A period
holds exactly rate × period arrivals (a fraction is rounded at random), placed as a Poisson process is
once its count is known: independent positions, uniform in cumulative intensity. So whole periods have
the wanted rate exactly, and seconds inside them scatter as Poisson arrivals do.

A period depends only on (seed, index, rate), which lets the rate change in flight: the rest of the
period is read from the same period at the new rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds since the start of the phase, and the model it is for."""

    at_s: float
    model: str


@dataclass(frozen=True, slots=True)
class Bursts:
    """`factor` × the mean rate during [start_s, start_s + burst_s) of every `period_s` seconds."""

    period_s: float = 20.0
    burst_s: float = 5.0
    factor: float = 1.6
    start_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.burst_s < self.period_s:
            raise ValueError(
                f"burst_s is {self.burst_s:g}: must lie between 0 and period_s ({self.period_s:g})"
            )
        if not 0 <= self.start_s <= self.period_s - self.burst_s:
            raise ValueError(f"start_s is {self.start_s:g}: the burst must lie within one period")
        if not 0 <= self.factor * self.burst_s <= self.period_s:
            raise ValueError(
                f"factor is {self.factor:g}: at most {self.period_s / self.burst_s:g}, "
                "or the rest of the period would need a negative rate"
            )

    @property
    def base(self) -> float:
        """Intensity outside the burst, relative to the mean: 0.8 for 1.6 × in 5 s of 20 s."""
        return (self.period_s - self.factor * self.burst_s) / (self.period_s - self.burst_s)

    def intensity(self, at_s: float) -> float:
        """Intensity relative to the mean at a time since the start of the phase."""
        offset = at_s % self.period_s
        return self.factor if self.start_s <= offset < self.start_s + self.burst_s else self.base

    def position(self, share: float) -> float:
        """The offset within a period by which `share` (0..1) of its arrivals have come: the inverse of the
        cumulative intensity, which is linear in three pieces.
        """
        before = self.base * self.start_s / self.period_s
        within = self.factor * self.burst_s / self.period_s
        if share < before:
            return share * self.period_s / self.base
        if share < before + within:
            return self.start_s + (share - before) * self.period_s / self.factor
        rest = share - before - within
        end = self.start_s + self.burst_s
        return end + (rest * self.period_s / self.base if self.base else 0.0)


STEADY = Bursts(factor=1.0)

#: the traffic of the demo: half, 30 % and 20 % of the requests
ASSISTANT_MIX: Mapping[str, float] = {"assistant-small": 0.5, "assistant-base": 0.3, "assistant-large": 0.2}


def period(
    index: int, *, rate_rps: float, seed: int, mix: Mapping[str, float], bursts: Bursts
) -> tuple[Arrival, ...]:
    """The arrivals of period number `index`, sorted, with times since the start of the phase.

    Raises ValueError for a negative rate or an empty mix.
    """
    if not (rate_rps >= 0 and math.isfinite(rate_rps)):
        raise ValueError(f"rate_rps is {rate_rps}: must be a finite number of requests per second, 0 or more")
    if not mix or min(mix.values()) < 0 or sum(mix.values()) <= 0:
        raise ValueError(f"mix is {dict(mix)}: needs at least one model with a positive weight")
    rng = random.Random(f"{seed}/{index}")
    expected = rate_rps * bursts.period_s
    count = int(expected) + (rng.random() < expected - int(expected))
    begin = index * bursts.period_s
    times = sorted(begin + bursts.position(rng.random()) for _ in range(count))
    models = rng.choices(list(mix), weights=list(mix.values()), k=count)
    return tuple(Arrival(at, model) for at, model in zip(times, models, strict=True))


def arrivals_from(
    start_s: float, *, rate_rps: float, seed: int, mix: Mapping[str, float], bursts: Bursts
) -> Iterator[Arrival]:
    """Endless arrivals of the schedule from `start_s` (seconds since the start of the phase) on."""
    index = int(start_s // bursts.period_s)
    while True:
        for arrival in period(index, rate_rps=rate_rps, seed=seed, mix=mix, bursts=bursts):
            if arrival.at_s >= start_s:
                yield arrival
        index += 1
        if rate_rps == 0:
            return


def schedule(
    *, rate_rps: float, seconds: float, seed: int, mix: Mapping[str, float], bursts: Bursts
) -> tuple[Arrival, ...]:
    """All arrivals of a phase of `seconds`."""
    found = []
    for arrival in arrivals_from(0.0, rate_rps=rate_rps, seed=seed, mix=mix, bursts=bursts):
        if arrival.at_s >= seconds:
            break
        found.append(arrival)
    return tuple(found)
