"""An InferenceSLO as a whole, and reading one from plain data with errors that people can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from slo_operator.api.names import API_VERSION, KIND
from slo_operator.api.spec import InferenceSLOSpec
from slo_operator.api.status import InferenceSLOStatus


class SpecError(ValueError):
    """A spec that cannot be read. `problems` are lines: `spec.pools[0].maxGPUs: what would be right`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class InferenceSLO:
    """One resource as read from the API server."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    deleting: bool
    spec: InferenceSLOSpec
    status: InferenceSLOStatus

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> InferenceSLO:
        """Read a body as the API server returns it. Raise SpecError naming every wrong field."""
        metadata = body.get("metadata", {})
        return cls(
            namespace=metadata.get("namespace", "default"),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            generation=metadata.get("generation", 0),
            resource_version=metadata.get("resourceVersion", ""),
            deleting="deletionTimestamp" in metadata,
            spec=parse_spec(body.get("spec", {})),
            status=parse_status(body.get("status")),
        )

    def owner_reference(self) -> dict[str, Any]:
        """For children: they go with the resource, also while the operator is down."""
        return owner_reference(self.name, self.uid)


def owner_reference(name: str, uid: str) -> dict[str, Any]:
    """The owner reference of a child of that InferenceSLO."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def parse_spec(spec: Mapping[str, Any]) -> InferenceSLOSpec:
    """Read a spec. Raise SpecError naming every wrong field and what would be right."""
    try:
        return InferenceSLOSpec.model_validate(spec)
    except ValidationError as error:
        raise SpecError([_line(dict(problem)) for problem in error.errors()]) from None


def parse_status(status: Mapping[str, Any] | None) -> InferenceSLOStatus:
    """Read a status; one that cannot be read counts as empty, since every tick writes it anew."""
    try:
        return InferenceSLOStatus.model_validate(status or {})
    except ValidationError:
        return InferenceSLOStatus()


def _line(problem: dict[str, Any]) -> str:
    path = "spec"
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    match problem["type"]:
        case "extra_forbidden":
            message = "there is no such field"
        case "missing":
            message = "this field is required"
        case "string_pattern_mismatch":
            message = f"{message} (got {problem['input']!r})"
    return f"{path}: {message}"
