"""The cluster as it is: pods, nodes and the operator's children, kept by reflectors in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slo_operator import kube as api
from slo_operator.api.names import FIELD_MANAGER, LABEL_MANAGED_BY
from slo_operator.kube import Kube, Resource
from slo_operator.observe.records import (
    ChildRecord,
    DeploymentRecord,
    Meta,
    NodeRecord,
    PodRecord,
    project_child,
    project_deployment,
    project_node,
    project_pod,
)
from slo_operator.observe.reflector import Reflector

#: longer than the API server's bookmarks (a minute) and a watch's whole life may be quiet
DEAF_AFTER_S = 300.0

_OURS = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
_CHILD_KINDS = (api.CONFIG_MAPS, api.SERVICES, api.DISRUPTION_BUDGETS, api.NETWORK_POLICIES)

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One consistent-enough picture: every decision of a tick reads the same."""

    pods: Mapping[_Key, PodRecord]
    nodes: Mapping[_Key, NodeRecord]
    deployments: Mapping[_Key, DeploymentRecord]

    def pods_of(self, deployment: DeploymentRecord) -> list[PodRecord]:
        """Pods that the Deployment's selector takes, by name; finished ones are left out."""
        wanted = deployment.selector.items()
        if not wanted:
            return []
        return sorted(
            (
                p
                for p in self.pods.values()
                if p.meta.namespace == deployment.meta.namespace
                and not p.finished
                and wanted <= p.labels.items()
            ),
            key=lambda p: p.meta.name,
        )


class Cluster:
    """Starts the reflectors and answers from them."""

    def __init__(self, kube: Kube, wake: Callable[[], None], clock: Callable[[], float]):
        def changed(record: Any) -> None:
            # Foreign pods and Deployments come and go all the time; the next regular tick sees them.
            if _concerns_us(record):
                wake()

        def reflector(
            resource: Resource, project: Callable[[Mapping[str, Any]], Any], selector: str = ""
        ) -> Any:
            return Reflector(kube, resource, project, changed, clock, selector)

        self.pods: Reflector[PodRecord] = reflector(api.PODS, project_pod)
        self.nodes: Reflector[NodeRecord] = reflector(api.NODES, project_node)
        # Targets belong to others and carry no label of ours.
        self.deployments: Reflector[DeploymentRecord] = reflector(api.DEPLOYMENTS, project_deployment)
        self.children: dict[str, Reflector[ChildRecord]] = {
            kind.kind: reflector(kind, project_child, _OURS) for kind in _CHILD_KINDS
        }
        self._all: list[Reflector[Any]] = [self.pods, self.nodes, self.deployments, *self.children.values()]

    def start(self, stop: threading.Event) -> list[threading.Thread]:
        """One daemon thread per kind."""
        threads = [
            threading.Thread(target=r.run, args=(stop,), name=f"watch-{r.resource.plural}", daemon=True)
            for r in self._all
        ]
        for thread in threads:
            thread.start()
        return threads

    @property
    def synced(self) -> bool:
        return all(r.synced for r in self._all)

    def deaf(self) -> list[str]:
        """Kinds whose watch has said nothing for too long: alive, but deaf."""
        return [r.resource.plural for r in self._all if r.synced and r.silent_s() > DEAF_AFTER_S]

    def state(self) -> ClusterState:
        return ClusterState(self.pods.snapshot(), self.nodes.snapshot(), self.deployments.snapshot())

    def observed(self, kind: str, namespace: str, name: str) -> ChildRecord | DeploymentRecord | None:
        """The child as last seen, None when it is not there."""
        if kind == api.DEPLOYMENTS.kind:
            return self.deployments.get(namespace, name)
        return self.children[kind].get(namespace, name)

    def children_of(self, uid: str) -> list[tuple[str, Meta]]:
        """(kind, identity) of everything that this resource controls."""
        records: list[tuple[str, Meta]] = [
            (api.DEPLOYMENTS.kind, r.meta) for r in self.deployments.snapshot().values()
        ]
        for kind, reflector in self.children.items():
            records += [(kind, r.meta) for r in reflector.snapshot().values()]
        return [(kind, meta) for kind, meta in records if meta.owner == uid]

    def put(self, kind: str, body: Mapping[str, Any]) -> None:
        """Write-through of an answer to our own write."""
        if kind == api.DEPLOYMENTS.kind:
            self.deployments.put(body)
        elif kind in self.children:
            self.children[kind].put(body)


def _concerns_us(record: Any) -> bool:
    match record:
        case PodRecord():
            return record.labels.get(LABEL_MANAGED_BY) == FIELD_MANAGER
        case DeploymentRecord():
            return bool(record.meta.owner)
        case NodeRecord():
            return False  # heartbeats; capacity is read at every tick
        case _:
            return True
