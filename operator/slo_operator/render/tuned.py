"""Tuned settings as text: the content of the tuned ConfigMap, written by the loop and read by init containers.

{"preprocessing": {"instances": 4, "max_batch_size": 8, "batching": {"delay_us": 5000, "preferred_sizes": []}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slo_tuner.settings import Batching, LongLane, ModelSettings, PodSettings, Remote

_FIELDS = frozenset({"instances", "max_batch_size", "batching", "remote"})
_REMOTE_FIELDS = frozenset({"timeout_ms", "local_instances", "lane"})
_LANE_FIELDS = frozenset({"from_bytes", "members"})
_BATCHING_FIELDS = frozenset({"delay_us", "preferred_sizes"})


def settings_to_json(settings: PodSettings) -> str:
    """Stable text: equal settings give equal text, so that applying them again changes nothing."""
    return json.dumps({model: _plain(settings[model]) for model in sorted(settings)}, indent=1) + "\n"


def settings_from_json(text: str) -> dict[str, ModelSettings]:
    """Read what `settings_to_json` wrote. Raise ValueError naming model and field, never anything else."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError("not settings: nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected an object with one entry per model, got {type(data).__name__}")
    return {model: _parse(model, entry) for model, entry in data.items()}


def _plain(settings: ModelSettings) -> dict[str, Any]:
    batching, remote = settings.batching, settings.remote
    plain: dict[str, Any] = {
        "instances": settings.instances,
        "max_batch_size": settings.max_batch_size,
        "batching": None
        if batching is None
        else {"delay_us": batching.delay_us, "preferred_sizes": list(batching.preferred_sizes)},
    }
    if remote is not None:
        plain["remote"] = {"timeout_ms": remote.timeout_ms, "local_instances": remote.local_instances}
        if remote.lane is not None:
            plain["remote"]["lane"] = {"from_bytes": remote.lane.from_bytes, "members": remote.lane.members}
    return plain


def _parse(model: str, entry: object) -> ModelSettings:
    fields = _object(entry, _FIELDS, model)
    batching = fields.get("batching")
    parsed = None
    if batching is not None:
        inner = _object(batching, _BATCHING_FIELDS, f"{model}.batching")
        sizes = inner.get("preferred_sizes", [])
        if not isinstance(sizes, list):
            raise ValueError(
                f"{model}.batching.preferred_sizes: expected a list of whole numbers, got {sizes!r}"
            )
        parsed = Batching(
            delay_us=_whole(inner.get("delay_us", 0), f"{model}.batching.delay_us"),
            preferred_sizes=tuple(_whole(size, f"{model}.batching.preferred_sizes") for size in sizes),
        )
    remote = fields.get("remote")
    return ModelSettings(
        instances=_whole(fields.get("instances"), f"{model}.instances"),
        max_batch_size=_whole(fields.get("max_batch_size"), f"{model}.max_batch_size"),
        batching=parsed,
        remote=None if remote is None else _remote(remote, f"{model}.remote"),
    )


def _remote(entry: object, path: str) -> Remote:
    fields = _object(entry, _REMOTE_FIELDS, path)
    lane = fields.get("lane")
    parsed = None
    if lane is not None:
        inner = _object(lane, _LANE_FIELDS, f"{path}.lane")
        parsed = LongLane(
            *(_whole(inner.get(key), f"{path}.lane.{key}") for key in ("from_bytes", "members"))
        )
    return Remote(
        timeout_ms=_whole(fields.get("timeout_ms"), f"{path}.timeout_ms"),
        local_instances=_whole(fields.get("local_instances", 1), f"{path}.local_instances"),
        lane=parsed,
    )


def _object(value: object, allowed: frozenset[str], path: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object with {', '.join(sorted(allowed))}, got {value!r}")
    unknown = sorted(value.keys() - allowed)
    if unknown:
        raise ValueError(
            f"{path}.{unknown[0]}: there is no such field; known are {', '.join(sorted(allowed))}"
        )
    return value


def _whole(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{path}: expected a whole number, got {value!r}")
    return value
