"""GPUs of a pool: the limit, what is held, and what earlier resources of this tick were promised.

The physical pool is the set of nodes; every pod on them counts, whoever made it, while it runs, is
pending or terminates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slo_operator.observe.cluster import ClusterState
from slo_operator.observe.records import NodeRecord, PodRecord
from slo_tuner.snapshot import PoolView


@dataclass(slots=True)
class Ledger:
    """Built anew at every tick; `promise` is called in the order of priority."""

    state: ClusterState
    _promised: list[tuple[frozenset[str], int]] = field(default_factory=list)

    def pool(
        self, name: str, selector: Mapping[str, str], limit_gpus: int, ours: set[tuple[str, str]]
    ) -> PoolView:
        """The pool as one resource may use it. `ours`: keys of the resource's own pods in this pool.

        The limit is the smaller of what was granted and what others have left of the nodes.
        """
        nodes = self._nodes(selector)
        names = frozenset(n.meta.name for n in nodes)
        physical = sum(n.gpus for n in nodes)
        mine = foreign = 0
        for pod in self.state.pods.values():
            if pod.finished or not pod.gpus:
                continue
            if pod.meta.key in ours:
                mine += pod.gpus
            elif pod.node in names or (not pod.node and _asks_for(pod, selector)):
                foreign += pod.gpus
        promised = sum(gpus for other, gpus in self._promised if other & names)
        return PoolView(
            name, limit_gpus=max(0, min(limit_gpus, physical - foreign - promised)), used_gpus=mine
        )

    def promise(self, selector: Mapping[str, str], gpus: int) -> None:
        """Reserve GPUs that an earlier resource will ask for; its pods do not exist yet."""
        if gpus > 0:
            self._promised.append((frozenset(n.meta.name for n in self._nodes(selector)), gpus))

    def _nodes(self, selector: Mapping[str, str]) -> list[NodeRecord]:
        wanted = selector.items()
        return [n for n in self.state.nodes.values() if wanted <= n.labels.items()]


def _asks_for(pod: PodRecord, selector: Mapping[str, str]) -> bool:
    """A pod that waits for a node of this pool."""
    return selector.items() <= pod.node_selector.items()
