"""How many queries a tick sends to Prometheus, by the number of namespaces that are served.

The number must not depend on it: all resources are asked about together.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figure import Figure
from slo_operator.observe.measure import Scope, measure
from slo_operator.observe.prometheus import RawSeries, Sample

SIZES = (1, 10, 100, 300)


class Counting:
    """A Prometheus that knows nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def vector(self, expression: str, at: float) -> list[Sample]:
        self.asked.append(expression)
        return []

    def matrix(self, expression: str, at: float) -> list[RawSeries]:
        self.asked.append(expression)
        return []


def tick(namespaces: int) -> list[str]:
    """The queries of one tick with that many namespaces, a server in each."""
    prometheus = Counting()
    names = tuple(f"team-{number:03}" for number in range(namespaces))
    measure(prometheus, Scope(namespaces=names, probes=("assistant",), slo_windows_s=(300.0,)), 60.0, 1e9)
    return prometheus.asked


def figures() -> Iterator[Figure]:
    """Queries per tick, and the size of the longest."""
    for size in SIZES:
        asked = tick(size)
        says = f"longest {max(map(len, asked)):,} bytes"
        yield Figure(
            "queries", f"per tick with {size} namespace{'s' if size > 1 else ''}", len(asked), "", says
        )
