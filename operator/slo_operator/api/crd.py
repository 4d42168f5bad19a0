"""The CustomResourceDefinition: schema, printer columns, status subresource."""

from __future__ import annotations

from typing import Any

from slo_operator.api.names import GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION
from slo_operator.api.schema import structural
from slo_operator.api.spec import InferenceSLOSpec
from slo_operator.api.status import InferenceSLOStatus

#: <resource>-<server>-headless, the longest name made of it, has to be a DNS label: 32 + 1 + 20 + 9 < 63
NAME_LIMIT = 32

#: a pattern and no rule: the length that rules see of metadata.name is not ours to bound
_METADATA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": NAME_LIMIT, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
    },
}


def custom_resource_definition() -> dict[str, Any]:
    """The CRD as plain data."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": _columns(),
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": SINGULAR,
        "shortNames": [SHORT_NAME],
        "categories": ["inference"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/name": "inferenceslo"}},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _schema() -> dict[str, Any]:
    return {
        "description": "Inference with service-level objectives: models, targets, and the GPUs they may use.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _METADATA,
            "spec": structural(InferenceSLOSpec, "spec"),
            "status": structural(InferenceSLOStatus, "status"),
        },
    }


def _columns() -> list[dict[str, Any]]:
    def condition(kind: str, field: str = "status") -> str:
        return f'.status.conditions[?(@.type=="{kind}")].{field}'

    def column(name: str, path: str, kind: str = "string", **more: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "jsonPath": path} | more

    return [
        column("Mode", ".spec.mode"),
        column("SLO Met", condition("SLOMet")),
        column("P99", ".status.summary.p99", description="Observed / target of the worst model"),
        column("Bottleneck", ".status.summary.bottleneck"),
        column("GPUs", ".status.summary.gpus", "integer"),
        column("Ready", condition("Ready"), priority=1),
        column("Decision", ".status.lastDecision.reason", priority=1),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
