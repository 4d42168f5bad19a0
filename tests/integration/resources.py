"""A small valid InferenceSLO and ways to spoil it."""

from __future__ import annotations

import copy
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from slo_operator.api.names import API_VERSION, GROUP, KIND, PLURAL, VERSION

#: as a value: take the field away
ABSENT: Final = object()

SPEC: Final[dict[str, Any]] = {
    "pools": [
        {"name": "a100", "nodeSelector": {"gpu": "a100"}, "maxGPUs": 4},
        {"name": "h100", "nodeSelector": {"gpu": "h100"}, "maxGPUs": 8},
    ],
    "servers": [
        {
            "name": "chat",
            "pool": "a100",
            "image": "triton:1",
            "repository": {"path": "/models"},
            "accelerator": {"gpus": 2},
            "replicas": {"min": 1, "max": 2},
            "template": {"spec": {"containers": [{"name": "triton"}]}},
            "models": [{"name": "m", "slo": {"latency": {"p99": "300ms"}}}],
        }
    ],
}


def resource(namespace: str, name: str = "assistant", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """A body as people send it."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": copy.deepcopy(SPEC if spec is None else spec),
    }


def with_values(spec: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy with `values` set at dotted paths such as servers.0.replicas.min."""
    out = copy.deepcopy(spec)
    for path, value in values.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        node: Any = out
        for parent in parents:
            node = node[parent] if isinstance(parent, int) else node.setdefault(parent, {})
        if value is ABSENT:
            del node[last]
        elif isinstance(last, int) and last == len(node):
            node.append(copy.deepcopy(value))
        else:
            node[last] = copy.deepcopy(value)
    return out


def refusal(api: client.ApiClient, body: dict[str, Any]) -> str | None:
    """What the API server says against creating `body`; None when it would take it. Nothing is stored."""
    try:
        client.CustomObjectsApi(api).create_namespaced_custom_object(
            GROUP,
            VERSION,
            body["metadata"]["namespace"],
            PLURAL,
            body,
            dry_run="All",
            field_validation="Strict",
        )
    except ApiException as error:
        if error.status not in (400, 422):
            raise
        return str(error.body)
    return None
