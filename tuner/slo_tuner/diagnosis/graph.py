"""The ensemble as a graph: which members a request waits for, one after the other.

Parallel branches join by the longest; a member fed by a streaming (decoupled) one overlaps it, so
that only its last call can be waited for. Shares therefore come from the path, never from a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slo_tuner.snapshot import EnsembleStep, ModelConfig


@dataclass(frozen=True, slots=True)
class PathStep:
    """One member on the critical path and the seconds a request spends there; `streamed` when it
    overlaps the member that feeds it.
    """

    model: str
    seconds: float
    streamed: bool = False


def critical_path(
    steps: tuple[EnsembleStep, ...], seconds: Mapping[str, float], models: Mapping[str, ModelConfig]
) -> tuple[PathStep, ...]:
    """The longest chain through the members by `seconds` (mean time per call, by model name).

    Steps that form a cycle, or whose model has no time, count as zero rather than fail.
    """
    producers = {tensor: i for i, step in enumerate(steps) for tensor in step.outputs}
    best: dict[int, tuple[float, tuple[int, ...]]] = {}

    def longest(i: int, visiting: frozenset[int]) -> tuple[float, tuple[int, ...]]:
        if i in best:
            return best[i]
        feeding = {producers[t] for t in steps[i].inputs if t in producers} - visiting - {i}
        paths = [longest(j, visiting | {i}) for j in sorted(feeding)]
        head = max(paths, key=lambda p: p[0], default=(0.0, ()))
        own = 0.0 if _streamed(steps, i, producers, models) else seconds.get(steps[i].model, 0.0)
        best[i] = (head[0] + own, (*head[1], i))
        return best[i]

    ends = [longest(i, frozenset()) for i in range(len(steps))]
    path = max(ends, key=lambda p: (p[0], len(p[1])), default=(0.0, ()))[1]
    return tuple(
        PathStep(steps[i].model, seconds.get(steps[i].model, 0.0), _streamed(steps, i, producers, models))
        for i in path
    )


def _streamed(
    steps: tuple[EnsembleStep, ...], i: int, producers: Mapping[str, int], models: Mapping[str, ModelConfig]
) -> bool:
    for tensor in steps[i].inputs:
        j = producers.get(tensor)
        if j is not None and j != i:
            config = models.get(steps[j].model)
            if config is not None and config.decoupled:
                return True
    return False
