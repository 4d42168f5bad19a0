"""A small cluster and small Tritons, all in memory and all by the test's clock."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slo_operator.kube import FIELD_MANAGER, KubeError, Resource
from slo_operator.observe.triton import BatchStat, TritonError

UID = "uid-assistant"
POOL = {"nvidia.com/gpu.product": "A100"}


class Clock:
    def __init__(self, now: float = 1_800_000_000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


def flatten(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict):
        out: dict[tuple[str, ...], Any] = {}
        for k, v in value.items():
            out |= flatten(v, (*path, k))
        return out
    return {path: value}


class FakeKube:
    """Server-side apply in small: leaves have owners, and taking one from somebody else needs force."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.owners: dict[tuple[str, str, str], dict[tuple[str, ...], str]] = {}
        self.versions = itertools.count(100)
        self.writes: list[tuple[str, str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.refuse: dict[str, KubeError] = {}
        self.down = False

    def key(self, resource: Resource, namespace: str | None, name: str) -> tuple[str, str, str]:
        return resource.kind, namespace or "", name

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """As somebody else, without ownership."""
        stored = copy.deepcopy(dict(body))
        meta = stored["metadata"]
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta["resourceVersion"] = str(next(self.versions))
        self.objects[stored["kind"], meta.get("namespace", ""), meta["name"]] = stored
        return stored

    def edit(self, kind: str, namespace: str, name: str, path: tuple[str, ...], value: Any) -> None:
        """A person with kubectl: takes the field over."""
        key = (kind, namespace, name)
        here = self.objects[key]
        for part in path[:-1]:
            here = here.setdefault(part, {})
        here[path[-1]] = value
        self.owners.setdefault(key, {})[path] = "kubectl-edit"
        self.objects[key]["metadata"]["resourceVersion"] = str(next(self.versions))

    def list_pages(self, resource: Resource, selector: str = "") -> Iterator[dict[str, Any]]:
        self._check()
        wanted = dict(p.split("=") for p in selector.split(",")) if selector else {}
        items = [
            copy.deepcopy(o)
            for (kind, _, _), o in self.objects.items()
            if kind == resource.kind and wanted.items() <= (o["metadata"].get("labels") or {}).items()
        ]
        yield {"items": items, "metadata": {"resourceVersion": str(next(self.versions))}}

    def watch(self, resource: Resource, version: str, seconds: int, selector: str = "") -> Iterator[Any]:
        return iter(())

    def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        self._check()
        found = self.objects.get(self.key(resource, namespace, name))
        if found is None:
            raise KubeError(404, "NotFound", f"{resource.plural} {name} not found")
        return copy.deepcopy(found)

    def apply(
        self, resource: Resource, body: Mapping[str, Any], *, force: bool = False, subresource: str = ""
    ) -> dict[str, Any]:
        self._check()
        if resource.kind in self.refuse:
            raise self.refuse[resource.kind]
        meta = body["metadata"]
        key = self.key(resource, meta.get("namespace"), meta["name"])
        old = self.objects.get(key)
        if subresource == "status":
            assert old is not None
            if old.get("status") != body["status"]:
                old["status"] = copy.deepcopy(body["status"])
                old["metadata"]["resourceVersion"] = str(next(self.versions))
                self.writes.append(("status", key[1], key[2]))
            return copy.deepcopy(old)
        owners = self.owners.setdefault(key, {})
        leaves = {p: v for p, v in flatten(dict(body)).items() if p[0] != "status"}
        if old is not None and not force:
            current = flatten(old)
            causes = tuple(
                ("." + ".".join(p), f'conflict with "{owners[p]}"')
                for p, v in leaves.items()
                if owners.get(p, FIELD_MANAGER) != FIELD_MANAGER and current.get(p) != v
            )
            if causes:
                raise KubeError(409, "Conflict", "apply failed with conflicts", causes)
        new: dict[str, Any] = (
            copy.deepcopy(old) if old is not None else {"metadata": {"uid": f"uid-{key[0]}-{key[2]}"}}
        )
        for path in [p for p, o in owners.items() if o == FIELD_MANAGER and p not in leaves]:
            here: Any = new
            for part in path[:-1]:
                here = here.get(part, {})
            here.pop(path[-1], None)
            del owners[path]
        for path, value in leaves.items():
            here = new
            for part in path[:-1]:
                here = here.setdefault(part, {})
            here[path[-1]] = copy.deepcopy(value)
            owners[path] = FIELD_MANAGER
        if new != old:
            new["metadata"]["resourceVersion"] = str(next(self.versions))
            new["metadata"]["generation"] = int(new["metadata"].get("generation", 0)) + 1
            self.objects[key] = new
            self.writes.append(key)
        return copy.deepcopy(self.objects[key])

    def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        if resource.kind == "Event":
            self.events.append(copy.deepcopy(dict(body)))
            return dict(body)
        self.writes.append(self.key(resource, body["metadata"].get("namespace"), body["metadata"]["name"]))
        return self.put(body)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        self._check()
        key = self.key(resource, namespace, name)
        if key in self.objects:
            del self.objects[key]
            self.writes.append(key)

    def _check(self) -> None:
        if self.down:
            raise KubeError(0, "Unreachable", "the API server does not answer")


def model_config(
    name: str, instances: int = 1, max_batch: int = 16, steps: tuple[str, ...] = ()
) -> ModelConfig:
    data: dict[str, Any] = {"name": name, "maxBatchSize": max_batch}
    if steps:
        tensors = [f"t{i}" for i in range(len(steps) + 1)]
        data["platform"] = "ensemble"
        data["ensembleScheduling"] = {
            "step": [
                {"modelName": m, "inputMap": {"IN": tensors[i]}, "outputMap": {"OUT": tensors[i + 1]}}
                for i, m in enumerate(steps)
            ]
        }
    else:
        data["backend"] = "python"
        data["instanceGroup"] = [{"name": f"{name}_0", "kind": "KIND_CPU", "count": instances}]
    return json_format.ParseDict(data, ModelConfig())


PIPELINE = ("preprocessing", "forward", "postprocessing")


def pipeline_configs() -> dict[str, ModelConfig]:
    """As found: one preprocessing process, two forward instances, batching off."""
    return {
        "assistant": model_config("assistant", steps=PIPELINE),
        "preprocessing": model_config("preprocessing", 1),
        "forward": model_config("forward", 2),
        "postprocessing": model_config("postprocessing", 1),
        "emulated-host": model_config("emulated-host", 1, max_batch=0),
    }


class KilledError(BaseException):
    """The operator's process ends here."""


@dataclass
class FakeTriton:
    """One pod's server."""

    configs: dict[str, ModelConfig] = field(default_factory=pipeline_configs)
    loads: list[str] = field(default_factory=list)
    refuses: dict[str, str] = field(default_factory=dict)
    ignores: set[str] = field(default_factory=set)
    silent: bool = False
    dies: bool = False
    tracing: dict[str, list[str]] = field(
        default_factory=lambda: {"trace_level": ["OFF"], "trace_rate": ["1000"]}
    )
    #: what was written to it
    traced: list[Mapping[str, list[str]]] = field(default_factory=list)
    stats: dict[str, dict[int, BatchStat]] = field(default_factory=dict)

    def models(self) -> list[str]:
        self._check("RepositoryIndex")
        return sorted(self.configs)

    def config(self, model: str) -> ModelConfig:
        self._check("ModelConfig")
        return copy.deepcopy(self.configs[model])

    def ready(self, model: str) -> bool:
        return True

    def statistics(self) -> Mapping[str, Mapping[int, BatchStat]]:
        self._check("ModelStatistics")
        return copy.deepcopy(self.stats)

    def load(self, model: str, config: str) -> None:
        self._check("RepositoryModelLoad")
        if self.dies:
            raise KilledError
        self.loads.append(model)
        if model in self.refuses:
            raise TritonError("pod", "RepositoryModelLoad", self.refuses[model], refused=True)
        if model not in self.ignores:
            self.configs[model] = json_format.Parse(config, ModelConfig())

    def trace_settings(self) -> dict[str, list[str]]:
        return dict(self.tracing)

    def set_trace_settings(self, settings: Mapping[str, list[str]]) -> dict[str, list[str]]:
        self.traced.append(settings)
        self.tracing |= settings
        return dict(self.tracing)

    def close(self) -> None:
        pass

    def _check(self, call: str) -> None:
        if self.silent:
            raise TritonError("pod", call, "deadline exceeded", refused=False)


def node(name: str = "node-1", gpus: int = 4) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(POOL)},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "32"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    deployment: Mapping[str, Any], name: str, ip: str, started: str = "2027-01-15T07:00:00Z"
) -> dict[str, Any]:
    template = deployment["spec"]["template"]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": dict(template["metadata"]["labels"]),
        },
        "spec": copy.deepcopy(template["spec"]) | {"nodeName": "node-1"},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "triton", "restartCount": 0, "state": {"running": {"startedAt": started}}}
            ],
        },
    }


def resource(mode: str = "Auto", **spec: Any) -> dict[str, Any]:
    """One server with two replicas of two GPUs, one pipeline with a p99 of 300 ms."""
    server = {
        "name": "chat",
        "pool": "a100",
        "image": "triton:1",
        "repository": {"path": "/models"},
        "accelerator": {"gpus": 2},
        "replicas": {"min": 2, "max": 2},
        "models": [{"name": "assistant", "slo": {"latency": {"p99": "300ms"}, "window": "1m"}}],
    }
    return {
        "apiVersion": "inferenceslo.dev/v1alpha1",
        "kind": "InferenceSLO",
        "metadata": {"name": "assistant", "namespace": "serving", "uid": UID, "generation": 1},
        "spec": {
            "mode": mode,
            "pools": [{"name": "a100", "nodeSelector": dict(POOL), "maxGPUs": 4}],
            "servers": [server],
            "rollout": {"analysis": "30s", "minSamples": 100, "reloadsPerHour": 60},
        }
        | spec,
    }
