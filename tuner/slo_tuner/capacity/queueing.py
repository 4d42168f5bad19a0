"""How long requests wait in one stage, as a distribution on a grid of milliseconds.

Without batching the stage is M/D/c, and one service time D is one step of Crommelin's exact argument:
N(t + D) = max(N(t) − c, 0) + Poisson(λ D). Stepping it through a cycle of quiet and burst also covers
bursts that overload the stage for seconds, where every stationary formula fails.

With dynamic batching the queue collapses into the next batch: an arrival that finds all instances
busy waits for the first to finish (the least of c residual times, each uniform in the service time),
then leaves with everything that waits. The busy states form a small birth chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from slo_tuner.capacity.batches import BatchCurve

GRID_S = 0.01
_HORIZON = 600  # bins: 6 s; longer waits are all equally hopeless and pile up in the last bin

_NEGLIGIBLE = 1e-9
_MOST_WAITING = 400  # requests in one stage

Pmf = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals at one stage of one pod: bursts of `peak_rps` for `burst_s` in every `period_s`."""

    mean_rps: float
    peak_rps: float
    burst_s: float = 5.0
    period_s: float = 20.0

    @property
    def quiet_rps(self) -> float:
        share = self.burst_s / self.period_s
        return max(0.0, (self.mean_rps - share * self.peak_rps) / (1.0 - share))

    def scaled(self, factor: float) -> Load:
        return Load(self.mean_rps * factor, self.peak_rps * factor, self.burst_s, self.period_s)


@dataclass(frozen=True, slots=True)
class Stage:
    """One model on one pod: `servers` instances, batches of at most `max_batch`, a batching delay
    (None: dynamic batching is off). `cv2` is the squared variation of the service time.
    """

    curve: BatchCurve
    servers: int
    max_batch: int = 1
    delay_s: float | None = None
    cv2: float = 0.0


@dataclass(frozen=True, slots=True)
class Sojourn:
    """Time in a stage, waiting and service, for arrivals in bursts and in quiet times."""

    burst: Pmf
    quiet: Pmf


def utilisation(stage: Stage, rate_rps: float) -> float:
    """Share of instance time needed at `rate_rps`; above 1 the queue grows without end."""
    batch = max(1, stage.max_batch) if stage.delay_s is not None else 1
    return rate_rps * stage.curve.seconds(batch) / (batch * max(1, stage.servers))


@lru_cache(maxsize=2048)
def sojourn(stage: Stage, load: Load) -> Sojourn:
    """Time in the stage. Both inputs are values, so equal questions are answered from the cache."""
    if stage.delay_s is None or stage.max_batch <= 1:
        return _unbatched(stage, load)
    return Sojourn(_batched(stage, load.peak_rps), _batched(stage, load.quiet_rps))


def _unbatched(stage: Stage, load: Load) -> Sojourn:
    if utilisation(stage, load.mean_rps) >= 1.0:  # the queue grows for ever
        return Sojourn(_hopeless(), _hopeless())
    service, servers = max(stage.curve.seconds(1), 1e-4), max(1, stage.servers)
    stretch = 1.0 + stage.cv2  # M/G against M/D: the wait grows by 1 + cv²
    quiet = _settle((1.0,), load.quiet_rps * service, servers, load.period_s / service)
    burst_mean, after = _average(quiet, load.peak_rps * service, servers, load.burst_s / service)
    quiet_mean, _ = _average(
        after, load.quiet_rps * service, servers, (load.period_s - load.burst_s) / service
    )
    return Sojourn(_wait(burst_mean, service, servers, stretch), _wait(quiet_mean, service, servers, stretch))


def _step(before: Sequence[float], arrivals: Sequence[float], servers: int) -> list[float]:
    low = math.fsum(before[: servers + 1])
    left = [low, *before[servers + 1 :]]
    state = trim(convolve(left, arrivals), 1e-7)
    if len(state) > _MOST_WAITING:
        state[_MOST_WAITING - 1] += math.fsum(state[_MOST_WAITING:])
        del state[_MOST_WAITING:]
    return state


def _settle(state: Pmf, mean_arrivals: float, servers: int, steps: float) -> list[float]:
    arrivals = poisson(mean_arrivals)
    now: list[float] = list(state)
    for _ in range(min(60, max(1, round(steps)))):
        following = _step(now, arrivals, servers)
        moved = (
            sum(abs(a - b) for a, b in zip(now, following, strict=False))
            + abs(len(now) - len(following)) * 1e-9
        )
        now = following
        if moved < 1e-4:
            break
    return now


def _average(
    state: Sequence[float], mean_arrivals: float, servers: int, steps: float
) -> tuple[list[float], list[float]]:
    """Mean distribution over the phase, and the state at its end."""
    arrivals = poisson(mean_arrivals)
    now, total = list(state), [0.0]
    count = max(1, round(steps))
    for done in range(count):
        following = _step(now, arrivals, servers)
        weight, settled = 1.0, False
        if done % 8 == 7:
            moved = sum(abs(a - b) for a, b in zip(now, following, strict=False))
            settled = moved < 1e-4 and len(now) == len(following)
            weight = float(count - done) if settled else 1.0
        if len(following) > len(total):
            total.extend([0.0] * (len(following) - len(total)))
        for n, p in enumerate(following):
            total[n] += weight * p
        now = following
        if settled:
            break
    mass = math.fsum(total)
    return [p / mass for p in total], now


def _wait(counts: Sequence[float], service: float, servers: int, stretch: float) -> Pmf:
    """Number found on arrival → time in the stage. With n ≥ c ahead the wait is spread evenly over
    ((n − c) … (n − c + 1)) · D / c.
    """
    pmf = [0.0] * _HORIZON
    width = service / servers * stretch
    for n, p in enumerate(counts):
        if p < 1e-12:
            continue
        if n < servers:
            _put(pmf, service, p)
            continue
        for part in range(4):
            _put(pmf, service + (n - servers + (part + 0.5) / 4) * width, p / 4)
    return tuple(trim(pmf))


def _batched(stage: Stage, rate: float) -> Pmf:
    servers, limit, delay = max(1, stage.servers), stage.max_batch, stage.delay_s or 0.0
    pmf = [0.0] * _HORIZON
    if utilisation(stage, rate) >= 1.0:
        return _hopeless()
    batch = _mean_batch(stage, rate)
    service = stage.curve.seconds(batch)
    all_busy, waiting = _collapse_chain(rate, servers, service, limit)
    alone = stage.curve.seconds(1 + rate * delay)
    _put(pmf, alone + delay, 1.0 - all_busy)
    parts = 24
    for overflow, p in waiting:  # full batches ahead: one more departure each
        for k in range(parts):
            # least of c uniform residuals: P(R > x) = (1 − x/s)^c
            residual = service * (1.0 - (1.0 - (k + 0.5) / parts) ** (1.0 / servers))
            wait = max(residual, delay) + overflow * service / servers
            size = min(limit, 1.0 + rate * service / (servers + 1))
            _put(pmf, wait + stage.curve.seconds(size), all_busy * p / parts)
    return tuple(trim(pmf))


def _mean_batch(stage: Stage, rate: float) -> float:
    """Mean batch of those that wait: arrivals during one time between departures (fixed point)."""
    batch = 1.0
    for _ in range(40):
        gap = stage.curve.seconds(batch) / max(1, stage.servers)
        batch = 0.5 * batch + 0.5 * min(float(stage.max_batch), max(1.0, rate * gap))
    return batch


def _collapse_chain(
    rate: float, servers: int, service: float, limit: int
) -> tuple[float, list[tuple[int, float]]]:
    """P(all instances busy), and how many full batches a waiting arrival finds ahead of it.

    States 0 … c−1 busy with nothing waiting, then (c, q). From (c, q) a departure takes min(q, limit).
    """
    if rate <= 0.0:
        return 0.0, [(0, 1.0)]
    mu = 1.0 / service
    ratio = rate / (rate + servers * mu)
    depth = min(4 * limit, 256)
    tail = [ratio**q for q in range(depth + 1)]  # relative to (c, 0); exact where batches take all
    full = math.fsum(tail)
    below, weight = 0.0, 1.0
    # flow up from j−1 to j equals flow down: λ π(j−1) = j μ π(j) for j < c; and λ π(c−1) = c μ π(c, 0)
    for j in range(servers, 0, -1):
        weight = weight * j * mu / rate
        below += weight
    all_busy = full / (full + below)
    ahead: dict[int, float] = {}
    for q, t in enumerate(tail):
        ahead[q // limit] = ahead.get(q // limit, 0.0) + t / full
    return all_busy, sorted(ahead.items())


def _hopeless() -> Pmf:
    return (*([0.0] * (_HORIZON - 1)), 1.0)


def _put(pmf: list[float], seconds: float, mass: float) -> None:
    """Spread over the two neighbouring bins, so that the mean is exact whatever the grid."""
    at = max(0.0, seconds / GRID_S)
    low = min(_HORIZON - 1, math.floor(at))
    part = min(1.0, at - low)
    pmf[low] += mass * (1.0 - part)
    pmf[min(_HORIZON - 1, low + 1)] += mass * part


@lru_cache(maxsize=512)
def poisson(mean: float) -> tuple[float, ...]:
    """P(0 … k) until the tail is negligible."""
    mean = min(max(mean, 0.0), 500.0)
    probabilities = []
    k, last = 0, math.exp(-mean)
    while k < mean + 8.0 * math.sqrt(mean) + 6.0:
        probabilities.append(last)
        k += 1
        last *= mean / k
    return tuple(probabilities)


def convolve(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Distribution of the sum of two independent grid times; the last bin of the horizon absorbs."""
    few, many = sorted((a, b), key=lambda pmf: sum(x > _NEGLIGIBLE for x in pmf))
    out = [0.0] * (len(a) + len(b) - 1)
    for i, x in enumerate(few):
        if x > _NEGLIGIBLE:
            for j, y in enumerate(many, i):
                out[j] += x * y
    if len(out) > _HORIZON:
        out[_HORIZON - 1] += math.fsum(out[_HORIZON:])
        del out[_HORIZON:]
    return out


def trim(pmf: list[float], mass: float = 1e-9) -> list[float]:
    """Without the far tail of at most this mass."""
    end, left = len(pmf), mass
    while end > 1 and pmf[end - 1] <= left:
        left -= pmf[end - 1]
        end -= 1
    return pmf[:end]
