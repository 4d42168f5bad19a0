"""A structural OpenAPI schema, as the API server wants it, out of a pydantic model.

The API server refuses `$ref`, `anyOf` with null and rules over unbounded lists. So references are put
in place, null branches dropped (an optional field is one that may be absent), and every list, map and
string must have a bound: one that has none is an error here rather than on somebody's cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

_DROPPED: Final = frozenset({"title", "$defs", "pattern"})
_KEPT_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


class UnboundedError(TypeError):
    """A model whose schema would have a list, map or string without a bound."""


def structural(model: type[BaseModel], path: str) -> dict[str, Any]:
    """The schema of `model` as an object of a CRD; `path` (such as spec) names it in errors.

    Raises UnboundedError for lists, maps and strings without a bound, TypeError for unions.
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), path)


def _convert(node: Mapping[str, Any], defs: Mapping[str, Any], path: str) -> dict[str, Any]:
    node = _resolve(node, defs)
    out = {key: value for key, value in node.items() if key not in _DROPPED}
    if "anyOf" in out:
        raise TypeError(f"{path}: a union of types cannot be structural")
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in out:
            out[bound], out[exclusive] = out[exclusive], True
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if out.get("type") == "integer":
        out.setdefault("format", "int64")
    if out.get("type") == "array":
        out["items"] = _convert(node["items"], defs, f"{path}[]")
    if "properties" in node:
        out.pop("additionalProperties", None)
        out["properties"] = {
            name: _convert(child, defs, f"{path}.{name}") for name, child in node["properties"].items()
        }
    elif isinstance(node.get("additionalProperties"), Mapping):
        out.pop("propertyNames", None)
        out["additionalProperties"] = _convert(node["additionalProperties"], defs, f"{path}.*")
    _check_bounds(out, path)
    return dict(sorted(out.items(), key=lambda item: _ORDER.get(item[0], 50)))


_ORDER: Final = {
    "description": 0,
    "type": 1,
    "format": 2,
    "enum": 3,
    "default": 4,
    "required": 60,
    "properties": 70,
    "items": 71,
}


def _resolve(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Put a reference's target in place and drop null branches; what stands beside it wins."""
    out = dict(node)
    if "anyOf" in out:
        branches = [branch for branch in out.pop("anyOf") if branch.get("type") != "null"]
        out = ({"anyOf": branches} if len(branches) > 1 else _resolve(branches[0], defs)) | out
        if out.get("default", ...) is None:
            del out["default"]
    if "allOf" in out and len(out["allOf"]) == 1:
        out = _resolve(out.pop("allOf")[0], defs) | out
    if "$ref" in out:
        out = _resolve(defs[out.pop("$ref").rsplit("/", 1)[-1]], defs) | out
    if isinstance(out.get("default"), dict):
        # written out: rules see an object's default before its fields get theirs
        out["default"] = _without_nulls(out["default"])
    return out


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value


def _check_bounds(node: Mapping[str, Any], path: str) -> None:
    match node.get("type"):
        case "string" if not {"maxLength", "enum"} & node.keys():
            raise UnboundedError(f"{path}: a string needs a largest length")
        case "array" if "maxItems" not in node:
            raise UnboundedError(f"{path}: a list needs a largest number of items")
        case "object" if "additionalProperties" in node and "maxProperties" not in node:
            raise UnboundedError(f"{path}: a map needs a largest number of entries")
        case "object" if not {"properties", "additionalProperties", _KEPT_OPEN} & node.keys():
            raise UnboundedError(f"{path}: an object needs its fields declared")
        case None:
            raise TypeError(f"{path}: no type")
