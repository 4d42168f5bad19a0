"""CEL rules as data, attached to a model's schema, so that the API server says what we would say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of `x-kubernetes-validations`.

    `message` says what would be right; `field` is a JSON path relative to the rule's place, such as
    .servers. (Messages built by CEL are out: over nested lists their cost exceeds the API server's budget.)
    """

    rule: str
    message: str
    field: str | None = None

    def schema(self) -> dict[str, str]:
        out = {"rule": self.rule, "message": self.message}
        if self.field:
            out["fieldPath"] = self.field
        return out


def validations(*rules: Rule, **more: Any) -> dict[str, Any]:
    """`json_schema_extra` of a model or field: its rules and further schema keywords."""
    return {"x-kubernetes-validations": [rule.schema() for rule in rules]} | more


def list_map(*keys: str) -> dict[str, Any]:
    """A list whose items are found, merged and kept unique by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
