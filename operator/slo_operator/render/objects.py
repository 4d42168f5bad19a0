"""Everything beside the Deployment: Services, Secret, ConfigMaps, PodDisruptionBudget, NetworkPolicy."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slo_operator.api import names
from slo_operator.render.context import Rendered, ServerContext
from slo_operator.render.deployment import deployment
from slo_operator.render.tuned import settings_to_json
from slo_tuner.settings import PodSettings

_KEY: Final = re.compile(r"^[A-Za-z0-9_-]{32,128}$")
_PORTS: Final = (("http", names.HTTP_PORT), ("grpc", names.GRPC_PORT), ("metrics", names.METRICS_PORT))


def server_objects(
    context: ServerContext,
    admin_key: str,
    tuned: PodSettings,
    live_deployment: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """All children of a server, in the order in which they are applied: what a pod needs comes before it."""
    return [
        control_secret(context, admin_key),
        tuned_config_map(context, tuned),
        *services(context),
        disruption_budget(context),
        network_policy(context),
        deployment(context, live_deployment),
    ]


def new_admin_key() -> str:
    """A key for model control: 256 random bits, without characters that the server's command line would split at."""
    return secrets.token_hex(32)


def admin_key_of(secret: Mapping[str, Any] | None) -> str | None:
    """The key in a live Secret; None when there is none that a server could use, and a new one is needed.

    A key is never replaced while it can be used: running servers know only the one they were started with.
    """
    encoded = ((secret or {}).get("data") or {}).get(names.ADMIN_KEY)
    if not isinstance(encoded, str):
        return None
    try:
        key = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return key if _KEY.fullmatch(key) else None


def control_secret(context: ServerContext, admin_key: str) -> dict[str, Any]:
    """The Secret with the key of model control."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": context.metadata(context.names.secret),
        "type": "Opaque",
        "data": {names.ADMIN_KEY: base64.b64encode(admin_key.encode("ascii")).decode("ascii")},
    }


def tuned_config_map(context: Rendered, settings: PodSettings) -> dict[str, Any]:
    """What pods come up with; empty settings leave the repository as it is."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": context.metadata(context.names.tuned),
        "data": {names.SETTINGS_KEY: settings_to_json(settings)},
    }


def state_config_map(context: ServerContext, memory_json: str) -> dict[str, Any]:
    """What the loop remembers of the server."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": context.metadata(context.names.state),
        "data": {names.MEMORY_KEY: memory_json},
    }


def services(context: ServerContext) -> list[dict[str, Any]]:
    """A ClusterIP Service for clients that open a connection per request, a headless one for those that balance."""
    return [
        service(context, context.names.service, _PORTS),
        service(context, context.names.headless, _PORTS, headless=True),
    ]


def disruption_budget(context: Rendered) -> dict[str, Any]:
    """One pod at a time; pods that are not ready may always go, or a broken one would hold up a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(context.names.budget),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": context.selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def network_policy(context: ServerContext) -> dict[str, Any]:
    """Inference from the own namespace, from namespaces labelled as clients, and from the operator; metrics from all.

    Control shares the inference ports and is held by its key.
    """
    clients = [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {names.LABEL_CLIENT: "true"}}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": context.system_namespace}}},
    ]
    inference = {"from": clients, "ports": [tcp(names.HTTP_PORT), tcp(names.GRPC_PORT)]}
    return ingress_policy(context, [inference, {"ports": [tcp(names.METRICS_PORT)]}])


def ingress_policy(context: Rendered, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """The NetworkPolicy that lets in what the rules say, and nothing else."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": context.metadata(context.names.network_policy),
        "spec": {
            "podSelector": {"matchLabels": context.selector},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def service(
    context: Rendered, name: str, ports: Sequence[tuple[str, int]], *, headless: bool = False
) -> dict[str, Any]:
    """A Service before the pods, for these ports by name."""
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        "selector": context.selector,
        "ports": [{"name": n, "port": port, "targetPort": n, "protocol": "TCP"} for n, port in ports],
    }
    if headless:
        spec["clusterIP"] = "None"
    return {"apiVersion": "v1", "kind": "Service", "metadata": context.metadata(name), "spec": spec}


def tcp(number: int) -> dict[str, Any]:
    """A port of a NetworkPolicy's rule."""
    return {"protocol": "TCP", "port": number}
