"""The schema is structural: no references, no unions, a bound on everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from slo_operator.api.crd import custom_resource_definition
from slo_operator.api.generate import crd_yaml, main
from slo_operator.api.names import GROUP, PLURAL
from slo_operator.api.schema import UnboundedError, structural
from slo_operator.api.status import HISTORY_LIMIT, DecisionStatus, InferenceSLOStatus, timestamp


def nodes(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        if "type" in node and isinstance(node["type"], str):
            yield path, node
        for key, child in node.items():
            yield from nodes(child, f"{path}.{key}")
    elif isinstance(node, list):
        for place, child in enumerate(node):
            yield from nodes(child, f"{path}[{place}]")


SCHEMA = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_nothing_the_api_server_refuses_is_in_the_schema() -> None:
    for path, node in nodes(SCHEMA):
        assert not {"$ref", "$defs", "anyOf", "allOf", "oneOf", "title", "const"} & node.keys(), path


def test_only_the_pod_template_is_open() -> None:
    opened = [path for path, node in nodes(SCHEMA) if "x-kubernetes-preserve-unknown-fields" in node]
    assert opened
    assert all(".servers.items.properties.template" in path for path in opened)


def test_every_list_map_and_string_has_a_bound() -> None:
    for path, node in nodes(SCHEMA["properties"]["spec"]):
        if node["type"] == "string":
            assert {"maxLength", "enum"} & node.keys(), path
        if node["type"] == "array":
            assert "maxItems" in node, path
        if isinstance(node.get("additionalProperties"), dict):
            assert "maxProperties" in node, path


class Loose(BaseModel):
    names: list[Annotated[str, Field(max_length=3)]]


class LooseText(BaseModel):
    text: str


class LooseMap(BaseModel):
    values: dict[str, int]


class Union(BaseModel):
    value: int | bool


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Loose, "spec.names: a list needs a largest number of items"),
        (LooseText, "spec.text: a string needs a largest length"),
        (LooseMap, "spec.values: a map needs a largest number of entries"),
    ],
)
def test_a_field_without_a_bound_is_an_error_here_and_not_on_a_cluster(
    model: type[BaseModel], message: str
) -> None:
    with pytest.raises(UnboundedError, match=message):
        structural(model, "spec")


def test_a_union_is_refused() -> None:
    with pytest.raises(TypeError, match=r"spec.value: a union of types"):
        structural(Union, "spec")


class Small(BaseModel):
    """A small one."""

    size: Annotated[int, Field(gt=0, le=9)] = 3
    note: Annotated[str, Field(max_length=5)] | None = None


def test_a_model_becomes_the_schema_one_would_write_by_hand() -> None:
    assert structural(Small, "spec") == {
        "description": "A small one.",
        "type": "object",
        "properties": {
            "size": {"type": "integer", "format": "int64", "default": 3, "minimum": 0, "exclusiveMinimum": True, "maximum": 9},
            "note": {"type": "string", "maxLength": 5},
        },
    }  # fmt: skip


def test_columns_are_those_people_look_for() -> None:
    columns = custom_resource_definition()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [c["name"] for c in columns if not c.get("priority")]
    assert shown == ["Mode", "SLO Met", "P99", "Bottleneck", "GPUs", "Age"]


def test_the_checked_in_crd_is_the_one_the_models_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 0
    stale = tmp_path / f"{GROUP}_{PLURAL}.yaml"
    stale.write_text(crd_yaml().replace("maximum: 64", "maximum: 65"))
    assert main(["--check", "--output", str(stale)]) == 1
    assert "-                          maximum: 65" in capsys.readouterr().err
    assert main(["--output", str(stale)]) == 0
    assert main(["--check", "--output", str(stale)]) == 0


def test_a_status_has_at_most_twenty_decisions_and_long_messages_are_shortened() -> None:
    decision = DecisionStatus(time=timestamp(0), reason="Waiting", message="x" * 2000)
    assert len(decision.message) == 1024
    assert decision.message.endswith("…")
    with pytest.raises(ValueError, match="at most 20 items"):
        InferenceSLOStatus(history=[decision] * (HISTORY_LIMIT + 1))


def test_times_are_written_as_kubernetes_does() -> None:
    assert timestamp(1_796_078_124.9) == "2026-11-30T22:35:24Z"
