"""What the models of a server are to each other: from their configurations, or guessed from counts and names.

An ensemble's row has no queue of its own, and its compute time is the sum of its members'. A model that looks like that
is taken for the ensemble of those other models whose times add up to its own; their order follows from their names. A
guess is said to be one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Final

from slo_operator.observe.measured import Field
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig

_ENSEMBLE: Final = re.compile(r"ensemble", re.IGNORECASE)
_BEFORE: Final = re.compile(r"pre[-_]?proc|tokeni[sz]e|^pre([-_]|$)|encode", re.IGNORECASE)
_AFTER: Final = re.compile(r"post[-_]?proc|de[-_]?tokeni[sz]e|^post([-_]|$)|decode", re.IGNORECASE)
#: a member that is called this often per request answers in pieces what the one before it streams
_STREAMED: Final = 1.5
_LEAST: Final = 0.9
#: sums agree within this; of more models than this not every set is tried
_CLOSE, _MOST = 0.03, 10
#: with more than these on one server sums agree by chance
_MOST_MODELS: Final = 64
_OWN_QUEUE: Final = 0.002

Rows = Mapping[str, Mapping[Field, float]]


def unknown(model: str) -> ModelConfig:
    """A model whose configuration nobody gave."""
    return ModelConfig(model, ModelSettings(1, 0), settings_known=False)


def clients_models(models: Mapping[str, ModelConfig]) -> tuple[str, ...]:
    """Models that no ensemble is made of: those that clients call."""
    members = {step.model for config in models.values() for step in config.steps}
    return tuple(name for name in models if name not in members)


def guessed(rows: Rows) -> dict[str, ModelConfig]:
    """Configurations of ensembles and their members as counts and names suggest; empty where nothing does."""
    busy = [name for name in rows if _requests(rows[name]) > 0]
    if len(busy) > _MOST_MODELS:
        return {}
    tops: dict[str, tuple[str, ...]] = {}
    for name in sorted(busy, key=lambda one: -_latency_us(rows[one])):
        if any(name in members for members in tops.values()):
            continue  # a member whose time happens to be the sum of others' is one all the same
        if _ENSEMBLE.search(name) or _no_queue(rows[name]):
            members = _members(name, [m for m in busy if m != name and m not in tops], rows)
            if len(members) >= 2:
                tops[name] = members
    found: dict[str, ModelConfig] = {}
    for top, members in tops.items():
        ordered = sorted(members, key=_place)
        steps = tuple(EnsembleStep(m, (f"t{n}",), (f"t{n + 1}",)) for n, m in enumerate(ordered))
        found[top] = replace(unknown(top), steps=steps)
        calls = max(
            (_requests(rows[m]) / _requests(rows[top]) for m in ordered if _place(m) == 1), default=1.0
        )
        for m in ordered:
            streams = len(tops) == 1 and _place(m) == 0 and calls >= _STREAMED
            found[m] = replace(unknown(m), decoupled=streams, uses_gpu=_place(m) == 0)
    return found


def _members(top: str, others: Sequence[str], rows: Rows) -> tuple[str, ...]:
    """Those whose mean compute times add up to the ensemble's; for one that has none but its name, all that its
    requests could have gone through."""
    enough = [
        m
        for m in others
        if _requests(rows[m]) >= _LEAST * _requests(rows[top])
        and _latency_us(rows[m]) <= _latency_us(rows[top])
    ]
    whole = _compute_us(rows[top])
    if whole > 0:
        sets = chain.from_iterable(
            combinations(enough[:_MOST], n) for n in range(2, min(len(enough), _MOST) + 1)
        )
        error, _, best = min(
            ((abs(sum(_compute_us(rows[m]) for m in some) / whole - 1.0), len(some), some) for some in sets),
            default=(1.0, 0, ()),
        )
        if error <= _CLOSE:
            return best
    return tuple(enough) if _ENSEMBLE.search(top) else ()


def _latency_us(row: Mapping[Field, float]) -> float:
    return row.get(Field.REQUEST_US, 0.0) / max(1.0, _requests(row))


def _no_queue(row: Mapping[Field, float]) -> bool:
    """Requests wait for members, never for an ensemble: what it counts as queue is a few microseconds."""
    latency = row.get(Field.REQUEST_US, 0.0)
    return 0 <= row.get(Field.QUEUE_US, latency) < _OWN_QUEUE * latency and _compute_us(row) > 0


def _requests(row: Mapping[Field, float]) -> float:
    return row.get(Field.REQUESTS, 0.0)


def _compute_us(row: Mapping[Field, float]) -> float:
    """Mean time in the backends per request."""
    return row.get(Field.COMPUTE_INFER_US, 0.0) / max(1.0, _requests(row))


def _place(model: str) -> int:
    """Before (−1) or after (1) the forward pass; 0 for what may be it."""
    if _AFTER.search(model):
        return 1
    return -1 if _BEFORE.search(model) else 0
