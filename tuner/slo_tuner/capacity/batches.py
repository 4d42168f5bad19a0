"""Time by batch size, from what was measured: never assumed linear, never decreasing in the batch.

Measured sizes are pooled to a non-decreasing curve (isotonic regression by pool-adjacent-violators,
weights = executions). Between measured sizes it is interpolated; above the largest it is extrapolated
and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slo_tuner.snapshot import BatchTime

#: cost of one more item, as a share of the time of one, where nothing larger was ever measured.
#: Wide on purpose: decode-like forward passes cost 2–6 % per item, compute-bound ones up to 15 %.
PRIOR_SLOPE = 0.08


def merge(batches: Sequence[BatchTime]) -> tuple[BatchTime, ...]:
    """Batch statistics of several pods as one, per size; impossible rows are left out."""
    totals: dict[int, tuple[int, float]] = {}
    for b in batches:
        if b.size >= 1 and b.executions > 0 and 0.0 <= b.mean_s < float("inf"):
            count, seconds = totals.get(b.size, (0, 0.0))
            totals[b.size] = (count + b.executions, seconds + b.executions * b.mean_s)
    return tuple(BatchTime(size, n, s / n) for size, (n, s) in sorted(totals.items()))


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """Execution time in seconds by batch size; `points` are (size, seconds), ascending in both."""

    points: tuple[tuple[int, float], ...]

    @property
    def largest_measured(self) -> int:
        return self.points[-1][0]

    def seconds(self, size: float) -> float:
        """Execution time at a batch of `size` items."""
        first_size, first = self.points[0]
        if size <= first_size:
            return first
        for (b0, s0), (b1, s1) in pairwise(self.points):
            if size <= b1:
                return s0 + (s1 - s0) * (size - b0) / (b1 - b0)
        last_size, last = self.points[-1]
        return last + self._slope() * (size - last_size)

    def _slope(self) -> float:
        (b0, s0), (b1, s1) = self.points[0], self.points[-1]
        prior = PRIOR_SLOPE * s0
        if b1 == b0:
            return prior
        # Few sizes say little about larger ones: the measured slope, but not below a quarter of the prior.
        return max((s1 - s0) / (b1 - b0), 0.25 * prior)

    def extrapolated(self, size: int) -> bool:
        return size > self.largest_measured


def curve(batches: Sequence[BatchTime], fallback_s: float) -> BatchCurve:
    """The isotonic curve of measured batches; `fallback_s` is the time of one where none were measured."""
    merged = merge(batches)
    if not merged:
        return BatchCurve(((1, fallback_s),))
    blocks: list[list[float]] = []  # [weight, mean, number of sizes]
    for b in merged:
        blocks.append([float(b.executions), b.mean_s, 1.0])
        while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
            w1, m1, k1 = blocks.pop()
            w0, m0, k0 = blocks.pop()
            blocks.append([w0 + w1, (w0 * m0 + w1 * m1) / (w0 + w1), k0 + k1])
    means = [m for _, m, k in blocks for _ in range(int(k))]
    return BatchCurve(tuple((b.size, m) for b, m in zip(merged, means, strict=True)))


def steps_up(batch_curve: BatchCurve, limit: int, gain: float = 0.3) -> tuple[int, ...]:
    """Measured sizes ≤ limit where items/s jumps by `gain` over the size below per item added: only these
    deserve to be preferred sizes (an engine built for 8 and 16, say). A smooth curve has none.
    """
    found: list[int] = []
    points = [p for p in batch_curve.points if p[0] <= limit]
    for (b0, s0), (b1, s1) in pairwise(points):
        if s0 <= 0 or s1 <= 0:
            continue
        before, after = b0 / s0, b1 / s1
        smooth = b1 / (s0 * (1 + PRIOR_SLOPE * (b1 - b0)))
        if b1 > 2 and after > before and after > (1 + gain) * smooth:
            found.append(b1)
    return tuple(found)
