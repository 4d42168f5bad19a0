"""What the builders need to know of one server, and what its children are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slo_operator.api import names
from slo_operator.api.resource import owner_reference
from slo_operator.api.spec import Pool, Server


@dataclass(frozen=True, slots=True)
class ChildNames:
    """Names of everything that is made for one server."""

    deployment: str
    service: str
    headless: str
    secret: str
    tuned: str
    state: str
    budget: str
    network_policy: str


def child_names(resource: str, server: str) -> ChildNames:
    """The children of server `server` of resource `resource`, or of a pool by the name that `pool_of` gives it."""
    base = f"{resource}-{server}"
    return ChildNames(
        deployment=base,
        service=base,
        headless=f"{base}-headless",
        secret=f"{base}-control",
        tuned=f"{base}-tuned",
        state=f"{base}-state",
        budget=base,
        network_policy=base,
    )


class Rendered(Protocol):
    """What objects are rendered for: a server, or the pool of one."""

    @property
    def names(self) -> ChildNames: ...

    @property
    def selector(self) -> dict[str, str]: ...

    def metadata(self, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of the server's times, in seconds; None until it was seen.

    `p99_s` is the worst model's request latency, `load_s` the time from a pod's start to ready.
    """

    p99_s: float | None = None
    load_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One server to be rendered.

    `replicas` is the wanted number; `gpu_free` whether one more pod would find its GPUs now;
    `trace_url` where servers send request traces (None: tracing stays off);
    `system_namespace` the operator's own.
    """

    namespace: str
    resource: str
    uid: str
    server: Server
    pool: Pool
    replicas: int
    overlay_image: str
    trace_url: str | None = None
    gpu_free: bool = False
    observed: Observed = Observed()
    system_namespace: str = names.SYSTEM_NAMESPACE

    @property
    def names(self) -> ChildNames:
        return child_names(self.resource, self.server.name)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the server's pods, and nothing else's."""
        return {names.LABEL_RESOURCE: self.resource, names.LABEL_SERVER: self.server.name}

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every child."""
        return {names.LABEL_NAME: "triton", names.LABEL_MANAGED_BY: names.FIELD_MANAGER} | self.selector

    def metadata(self, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Metadata of a child: labels, and the resource as its owner."""
        out: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels,
            "ownerReferences": [owner_reference(self.resource, self.uid)],
        }
        if annotations:
            out["annotations"] = dict(annotations)
        return out
