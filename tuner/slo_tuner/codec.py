"""ServerMemory ↔ JSON. Bounded and versioned; anything else than version 1 reads as a fresh memory, which is safe."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from slo_tuner.memory import Change, Phase, PoolMemory, ServerMemory, Tried
from slo_tuner.settings import Batching, LongLane, ModelSettings, PodSettings, Remote

VERSION = 1
MAX_TRIED = 50
MAX_RELOADS = 200
HOUR_S = 3600.0

Json = Any


def memory_to_json(memory: ServerMemory) -> str:
    """Compact JSON with sorted keys: equal memories give equal text, so that nothing is rewritten in vain.

    Of reloads those within an hour of the newest are kept, of tries the last 50.
    """
    newest = max(memory.reloads, default=0.0)
    return json.dumps(
        {
            "version": VERSION,
            "original": _settings(memory.original),
            "stable": _settings(memory.stable),
            "change": None if memory.change is None else _change(memory.change),
            "replicas": memory.replicas,
            "lastAction": memory.last_action,
            "lastScale": memory.last_scale,
            "calmSince": memory.calm_since,
            "reloads": [t for t in memory.reloads if newest - t < HOUR_S][-MAX_RELOADS:],
            "tried": [_tried(t) for t in memory.tried[-MAX_TRIED:]],
            "pool": _pool(memory.pool),
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def memory_from_json(text: str | None) -> ServerMemory:
    """The memory in `text`; a fresh one for nothing, garbage or another version."""
    try:
        data = json.loads(text) if text else None
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return ServerMemory()
        return ServerMemory(
            version=VERSION,
            original=_read_settings(data["original"]),
            stable=_read_settings(data["stable"]),
            change=None if data["change"] is None else _read_change(data["change"]),
            replicas=None if data["replicas"] is None else int(data["replicas"]),
            last_action=_finite(data["lastAction"]),
            last_scale=_finite(data["lastScale"]),
            calm_since=None if data["calmSince"] is None else _finite(data["calmSince"]),
            reloads=tuple(_finite(t) for t in data["reloads"])[-MAX_RELOADS:],
            tried=tuple(_read_tried(t) for t in data["tried"])[-MAX_TRIED:],
            pool=_read_pool(data["pool"]) if "pool" in data else PoolMemory(),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return ServerMemory()


def _pool(pool: PoolMemory) -> Json:
    return {
        "replicas": pool.replicas,
        "stages": list(pool.stages),
        "since": pool.since,
        "calmSince": pool.calm_since,
        "homeSince": pool.home_since,
    }


def _read_pool(data: Json) -> PoolMemory:
    calm, home = data["calmSince"], data["homeSince"]
    return PoolMemory(
        int(data["replicas"]),
        tuple(str(stage) for stage in data["stages"]),
        _finite(data["since"]),
        None if calm is None else _finite(calm),
        None if home is None else _finite(home),
    )


def _settings(settings: PodSettings) -> dict[str, Json]:
    return {name: _model_settings(s) for name, s in settings.items()}


def _model_settings(s: ModelSettings) -> Json:
    b, r = s.batching, s.remote
    return {
        "instances": s.instances,
        "maxBatchSize": s.max_batch_size,
        "batching": None if b is None else {"delayUs": b.delay_us, "preferredSizes": list(b.preferred_sizes)},
        "remote": None if r is None else _remote(r),
    }


def _remote(r: Remote) -> Json:
    lane = r.lane
    return {
        "timeoutMs": r.timeout_ms,
        "localInstances": r.local_instances,
        "lane": None if lane is None else {"fromBytes": lane.from_bytes, "members": lane.members},
    }


def _read_remote(data: Mapping[str, Json]) -> Remote:
    lane = data.get("lane")
    parsed = None if lane is None else LongLane(int(lane["fromBytes"]), int(lane["members"]))
    return Remote(int(data["timeoutMs"]), int(data["localInstances"]), parsed)


def _read_settings(data: Mapping[str, Json]) -> dict[str, ModelSettings]:
    found = {}
    for name, s in data.items():
        b, r = s["batching"], s.get("remote")
        batching = (
            None if b is None else Batching(int(b["delayUs"]), tuple(int(x) for x in b["preferredSizes"]))
        )
        remote = None if r is None else _read_remote(r)
        found[str(name)] = ModelSettings(int(s["instances"]), int(s["maxBatchSize"]), batching, remote)
    return found


def _change(c: Change) -> dict[str, Json]:
    return {
        "id": c.id,
        "lever": c.lever,
        "settings": _settings(c.settings),
        "before": _settings(c.before),
        "pods": list(c.pods),
        "phase": c.phase.value,
        "since": c.since,
        "started": c.started,
        "looks": c.looks,
        "baseline": dict(c.baseline),
        "live": c.live,
    }


def _read_change(data: Mapping[str, Json]) -> Change:
    return Change(
        id=str(data["id"]),
        lever=str(data["lever"]),
        settings=_read_settings(data["settings"]),
        before=_read_settings(data["before"]),
        pods=_pods(data["pods"]),
        phase=Phase(data["phase"]),
        since=_finite(data["since"]),
        started=_finite(data["started"]),
        looks=int(data["looks"]),
        baseline=_numbers(data["baseline"]),
        live=bool(data.get("live", False)),
    )


def _pods(data: list[Json]) -> tuple[str, ...]:
    if not data:
        raise ValueError("a change without pods")
    return tuple(str(p) for p in data)


def _tried(t: Tried) -> dict[str, Json]:
    return {
        "lever": t.lever,
        "fingerprint": t.fingerprint,
        "outcome": t.outcome,
        "at": t.at,
        "before": dict(t.before),
        "after": dict(t.after),
    }


def _read_tried(data: Mapping[str, Json]) -> Tried:
    return Tried(
        str(data["lever"]), str(data["fingerprint"]), str(data["outcome"]), _finite(data["at"]),
        _numbers(data["before"]), _numbers(data["after"]),
    )  # fmt: skip


def _numbers(data: Mapping[str, Json]) -> dict[str, float]:
    return {str(k): _finite(v) for k, v in data.items()}


def _finite(value: Json) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
