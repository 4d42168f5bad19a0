"""The pod template that people may merge into a server's pod, and the fields in it that are ours.

The template is the one place of the API that takes any field: it is Kubernetes' own type. What the
operator owns is refused by name, here and (where the rule language can see it) by the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from slo_operator.api.names import CONTAINER, GPU_RESOURCE, GROUP, LABEL_MANAGED_BY, LABEL_NAME, POOL_ENV
from slo_operator.api.rules import Rule

#: field of the pod's spec → where its value comes from instead
OWNED_POD: Final = {
    "terminationGracePeriodSeconds": "it follows from the observed latency",
    "restartPolicy": "a server always restarts",
}
#: field of the container `triton` → where its value comes from instead
OWNED_CONTAINER: Final = {
    "image": "set image of the server",
    "command": "the operator starts tritonserver; further arguments go into args",
    "startupProbe": "it follows from the load time",
    "livenessProbe": "it asks the server itself",
    "readinessProbe": "it asks the server itself",
    "lifecycle": "it follows from the observed latency",
}
OWNED_ARGUMENTS: Final = frozenset(
    {
        *("model-repository", "model-store", "model-control-mode", "load-model", "strict-readiness"),
        *("exit-on-error", "exit-timeout-secs", "http-port", "grpc-port", "metrics-port"),
        *("allow-http", "allow-grpc", "allow-metrics", "metrics-interval-ms", "metrics-config"),
        *("grpc-restricted-protocol", "http-restricted-api", "trace-config"),
        *("grpc-max-connection-age", "grpc-max-connection-age-grace"),
    }
)
OWNED_ENV: Final = frozenset({"ADMIN_KEY", "POD_NAME", POOL_ENV})
OWNED_VOLUMES: Final = frozenset({"overlay", "tuned", "repository", "shm", "tmp"})
OWNED_INIT: Final = frozenset({"overlay", "tuned"})
OWNED_LABELS: Final = frozenset({LABEL_NAME, LABEL_MANAGED_BY})

_FLAG = re.compile(r"^--([a-z-]+)")


class PodTemplate(dict[str, Any]):
    """A partial PodTemplateSpec: metadata (labels, annotations) and spec."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def parse(value: dict[str, Any]) -> PodTemplate:
            problems = list(_problems(value))
            if problems:
                raise ValueError("; ".join(problems))
            return cls(value)

        return core_schema.no_info_after_validator_function(
            parse, core_schema.dict_schema(core_schema.str_schema())
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return template_schema()


def template_schema() -> dict[str, Any]:
    """The structural schema: open, with the owned fields declared so that rules can see them."""
    opened = {"x-kubernetes-preserve-unknown-fields": True}
    declared: dict[str, Any] = {field: {"type": "object"} | opened for field in OWNED_CONTAINER}
    declared |= {
        "name": {"type": "string", "maxLength": 63},
        "image": {"type": "string", "maxLength": 512},
        "command": {"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 1024}},
    }
    container = {
        "type": "object",
        "required": ["name"],
        "properties": declared,
        "x-kubernetes-validations": [
            Rule(f"self.name != '{CONTAINER}' || !has(self.{field})", _owned(field, why)).schema()
            for field, why in OWNED_CONTAINER.items()
        ],
    } | opened
    init = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": 63}},
        "x-kubernetes-validations": [
            Rule(
                f"!(self.name in {sorted(OWNED_INIT)})",
                f"the names {' and '.join(sorted(OWNED_INIT))} are the operator's: choose another",
            ).schema()
        ],
    } | opened
    spec = {
        "type": "object",
        "properties": {
            "terminationGracePeriodSeconds": {"type": "integer"},
            "restartPolicy": {"type": "string", "maxLength": 16},
            "containers": {"type": "array", "maxItems": 16, "items": container},
            "initContainers": {"type": "array", "maxItems": 16, "items": init},
        },
        "x-kubernetes-validations": [
            Rule(f"!has(self.{field})", f"{field} is the operator's: {why}").schema()
            for field, why in OWNED_POD.items()
        ],
    } | opened
    label = {
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 262_144},
    }
    metadata = {"type": "object", "properties": {"labels": label, "annotations": label}}
    return {"type": "object", "properties": {"metadata": metadata, "spec": spec}}


def _owned(field: str, why: str) -> str:
    return f"{field} is the operator's: {why}"


def _problems(template: dict[str, Any]) -> Iterator[str]:
    for key in template.keys() - {"metadata", "spec"}:
        yield f"{key}: a pod template has metadata and spec"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for key in metadata.keys() - {"labels", "annotations"}:
        yield f"metadata.{key}: only labels and annotations can be set"
    for key in metadata.get("labels") or {}:
        if key in OWNED_LABELS or key.startswith(f"{GROUP}/"):
            yield f"metadata.labels[{key}] is the operator's"
    for field, why in OWNED_POD.items():
        if field in spec:
            yield f"spec.{_owned(field, why)}"
    for index, volume in enumerate(spec.get("volumes") or []):
        if volume.get("name") in OWNED_VOLUMES:
            yield f"spec.volumes[{index}]: the name {volume['name']} is the operator's: choose another"
    for index, container in enumerate(spec.get("initContainers") or []):
        if container.get("name") in OWNED_INIT:
            name = container["name"]
            yield f"spec.initContainers[{index}]: the name {name} is the operator's: choose another"
    for index, container in enumerate(spec.get("containers") or []):
        path = f"spec.containers[{index}]"
        if not container.get("name"):
            yield f"{path}.name is missing; the server's container is {CONTAINER}"
        elif container["name"] == CONTAINER:
            yield from _container_problems(container, path)


def _container_problems(container: dict[str, Any], path: str) -> Iterator[str]:
    for field, why in OWNED_CONTAINER.items():
        if field in container:
            yield f"{path}.{_owned(field, why)}"
    for index, argument in enumerate(container.get("args") or []):
        flag = _FLAG.match(str(argument))
        if flag and flag[1] in OWNED_ARGUMENTS:
            yield f"{path}.args[{index}]: --{flag[1]} is the operator's"
    for index, variable in enumerate(container.get("env") or []):
        if variable.get("name") in OWNED_ENV:
            yield f"{path}.env[{index}]: {variable['name']} is the operator's"
    for kind, quantities in (container.get("resources") or {}).items():
        if isinstance(quantities, dict) and GPU_RESOURCE in quantities:
            yield f"{path}.resources.{kind}[{GPU_RESOURCE}] is the operator's: set accelerator.gpus"
