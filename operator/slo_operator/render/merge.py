"""Merging a partial pod template into a rendered one, as kubectl's strategic merge does.

Objects merge field by field. Lists of Kubernetes objects merge by their key (containers by name, mounts by
path, …), other lists are replaced, and arguments are appended, since that is what further arguments are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

#: last part of a field's path → the key that identifies its items
MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "schedulingGates": "name",
}
APPENDED: Final = frozenset({"args", "envFrom", "tolerations"})


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` merged over it; neither is changed. Items that only the patch has come last."""
    out = copy.deepcopy(dict(base))
    for field, value in patch.items():
        out[field] = _merge_field(field, out.get(field), value)
    return out


def _merge_field(field: str, base: Any, value: Any) -> Any:
    if isinstance(base, dict) and isinstance(value, Mapping):
        return strategic_merge(base, value)
    if isinstance(base, list) and isinstance(value, list):
        if field in MERGE_KEYS:
            return _merge_list(field, base, value)
        if field in APPENDED:
            return [*base, *copy.deepcopy(value)]
    return copy.deepcopy(value)


def _merge_list(field: str, base: list[Any], patch: list[Any]) -> list[Any]:
    key = MERGE_KEYS[field]
    out = list(base)
    places = {item.get(key): place for place, item in enumerate(out)}
    for item in patch:
        place = places.get(item.get(key))
        if place is None:
            out.append(copy.deepcopy(item))
        elif field == "env":
            # a variable has a value or a source; merged it would have both
            out[place] = copy.deepcopy(item)
        else:
            out[place] = strategic_merge(out[place], item)
    return out
