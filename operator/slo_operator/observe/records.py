"""What is kept of a Kubernetes object: a few fields, frozen. Thousands of pods must stay small."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slo_operator.api.names import (
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_KEPT,
    ANNOTATION_STAGES,
    CONTAINER,
    LABEL_SERVER,
)

#: extended resources that stand for whole GPUs or slices of one
GPU_PREFIXES = ("nvidia.com/gpu", "nvidia.com/mig-")

_RENDERED = (ANNOTATION_CONFIG_HASH, ANNOTATION_KEPT, ANNOTATION_STAGES)

_SUFFIX = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Meta:
    """Identity of an object; `owner` is the uid of its controller, `server` our label."""

    namespace: str
    name: str
    uid: str
    version: str
    owner: str = ""
    server: str = ""
    terminating: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod that may hold GPUs or serve.

    `started` is when its serving container last started (epoch seconds, 0 before that), `restarts` how
    often it did; `gpus` is what the pod asks for, init containers included.
    """

    meta: Meta
    labels: Mapping[str, str]
    node: str
    ip: str
    phase: str
    ready: bool
    started: float
    restarts: int
    gpus: int
    cpu_limit_cores: float | None
    node_selector: Mapping[str, str]

    @property
    def finished(self) -> bool:
        """Succeeded or failed: its GPUs are free again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    meta: Meta
    labels: Mapping[str, str]
    gpus: int
    cpu_cores: float
    schedulable: bool


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """A Deployment: ours, or a target.

    `annotations` are those that rendering reads again; `stuck` is the message of a rollout that made no
    progress within its deadline.
    """

    meta: Meta
    digest: str
    selector: Mapping[str, str]
    replicas: int
    generation: int
    observed_generation: int
    updated: int
    ready: int
    total: int
    annotations: Mapping[str, str]
    stuck: str = ""

    @property
    def settled(self) -> bool:
        """Everything wanted is there, and nothing else."""
        return (
            self.observed_generation >= self.generation
            and self.updated == self.replicas == self.total
            and self.ready == self.replicas
        )


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """Any other object that we made: `digest` stands for all but its status; `data` of ConfigMaps only."""

    meta: Meta
    digest: str
    data: Mapping[str, str]


def project_pod(body: Mapping[str, Any]) -> PodRecord:
    spec, status = body.get("spec", {}), body.get("status", {})
    containers = spec.get("containers", [])
    name, container = _serving(containers)
    state: dict[str, Any] = next(
        (s for s in status.get("containerStatuses", []) if s.get("name") == name), {}
    )
    started = state.get("state", {}).get("running", {}).get("startedAt")
    limit = container.get("resources", {}).get("limits", {}).get("cpu")
    return PodRecord(
        meta=project_meta(body),
        labels=dict(body["metadata"].get("labels") or {}),
        node=spec.get("nodeName", ""),
        ip=status.get("podIP", ""),
        phase=status.get("phase", ""),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", [])),
        started=epoch(started) if started else 0.0,
        restarts=int(state.get("restartCount", 0)),
        gpus=max(
            sum(_gpus(c) for c in containers),
            max((_gpus(c) for c in spec.get("initContainers", [])), default=0),
        ),
        cpu_limit_cores=quantity(limit) if limit is not None else None,
        node_selector=dict(spec.get("nodeSelector") or {}),
    )


def project_node(body: Mapping[str, Any]) -> NodeRecord:
    allocatable = body.get("status", {}).get("allocatable", {})
    ready = any(
        c["type"] == "Ready" and c["status"] == "True" for c in body.get("status", {}).get("conditions", [])
    )
    return NodeRecord(
        meta=project_meta(body),
        labels=dict(body["metadata"].get("labels") or {}),
        gpus=sum(int(v) for k, v in allocatable.items() if k.startswith(GPU_PREFIXES)),
        cpu_cores=quantity(allocatable.get("cpu", "0")),
        schedulable=ready and not body.get("spec", {}).get("unschedulable", False),
    )


def project_deployment(body: Mapping[str, Any]) -> DeploymentRecord:
    spec, status = body.get("spec", {}), body.get("status", {})
    stuck = next(
        (
            c.get("message", "")
            for c in status.get("conditions", [])
            if c["type"] == "Progressing" and c["status"] == "False"
        ),
        "",
    )
    return DeploymentRecord(
        meta=project_meta(body),
        digest=digest(body),
        selector=dict(spec.get("selector", {}).get("matchLabels") or {}),
        replicas=int(spec.get("replicas", 1)),
        generation=int(body["metadata"].get("generation", 0)),
        observed_generation=int(status.get("observedGeneration", 0)),
        updated=int(status.get("updatedReplicas", 0)),
        ready=int(status.get("readyReplicas", 0)),
        total=int(status.get("replicas", 0)),
        annotations={k: v for k, v in (body["metadata"].get("annotations") or {}).items() if k in _RENDERED},
        stuck=stuck,
    )


def project_child(body: Mapping[str, Any]) -> ChildRecord:
    data = body.get("data") if body.get("kind", "ConfigMap") == "ConfigMap" else None
    return ChildRecord(meta=project_meta(body), digest=digest(body), data=dict(data or {}))


def project_meta(body: Mapping[str, Any]) -> Meta:
    meta = body["metadata"]
    owner = next((o["uid"] for o in meta.get("ownerReferences", []) if o.get("controller")), "")
    return Meta(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        owner=owner,
        server=(meta.get("labels") or {}).get(LABEL_SERVER, ""),
        terminating="deletionTimestamp" in meta,
    )


def digest(body: Mapping[str, Any]) -> str:
    """A short hash of all that a person or a controller can *want* of the object.

    Left out: its status, and the bookkeeping that changes with every write.
    """
    meta = body["metadata"]
    kept = {k: v for k, v in body.items() if k not in ("status", "metadata", "apiVersion", "kind")}
    kept["labels"] = meta.get("labels")
    kept["annotations"] = meta.get("annotations")
    kept["owners"] = meta.get("ownerReferences")
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def quantity(text: str | int | float) -> float:
    """A Kubernetes quantity as a number: 500m is 0.5, 2Gi is 2147483648."""
    value = str(text)
    suffix = value.lstrip("+-0123456789.eE") if not value[-1:].isdigit() else ""
    number = value.removesuffix(suffix) if suffix else value
    if suffix not in _SUFFIX:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return float(number) * _SUFFIX[suffix]


def epoch(timestamp: str) -> float:
    """RFC 3339 as seconds since the epoch."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _serving(containers: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The container that serves: ours by name, else the first with a GPU, else the first."""
    for test in (lambda c: c.get("name") == CONTAINER, _gpus):
        for container in containers:
            if test(container):
                return container["name"], container
    return (containers[0]["name"], containers[0]) if containers else ("", {})


def _gpus(container: Mapping[str, Any]) -> int:
    limits = container.get("resources", {}).get("limits", {})
    return sum(int(v) for k, v in limits.items() if k.startswith(GPU_PREFIXES))
