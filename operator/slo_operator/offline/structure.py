"""What the models of a server are to each other: from their configurations, or guessed from counts and names.

An ensemble's row has no queue of its own, and its compute time is the sum of its members'. A model that looks like that
is taken for the ensemble of those other models whose times add up to its own and whose calls its requests explain;
their order follows from their names. A guess is said to be one.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Final

from slo_operator.observe.measured import Field
from slo_operator.observe.roles import place_of
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig

_ENSEMBLE: Final = re.compile(r"ensemble", re.IGNORECASE)
#: a member that is called this often per request answers in pieces what the one before it streams
_STREAMED: Final = 1.5
_LEAST: Final = 0.9
#: sums agree within this; of more models than this not every set is tried
_CLOSE, _MOST = 0.03, 10
#: with more than these on one server sums agree by chance
_MOST_MODELS: Final = 64
#: of a member's calls, as many may come from elsewhere
_MOST_UNCALLED: Final = 0.25
#: so many explanations are compared
_MOST_COMBINED: Final = 20_000
_OWN_QUEUE: Final = 0.002

Rows = Mapping[str, Mapping[Field, float]]
Members = tuple[str, ...]


def unknown(model: str) -> ModelConfig:
    """A model whose configuration nobody gave."""
    return ModelConfig(model, ModelSettings(1, 0), settings_known=False)


def clients_models(models: Mapping[str, ModelConfig]) -> tuple[str, ...]:
    """Models that no ensemble is made of: those that clients call."""
    members = {step.model for config in models.values() for step in config.steps}
    return tuple(name for name in models if name not in members)


def guessed(rows: Rows) -> dict[str, ModelConfig]:
    """Configurations of ensembles and their members as counts and names suggest; empty where nothing does, or where
    two explanations are as good as each other."""
    busy = [name for name in rows if _requests(rows[name]) > 0]
    if len(busy) > _MOST_MODELS:
        return {}
    tops = _explained(rows, _candidates(busy, rows))
    found: dict[str, ModelConfig] = {}
    for top, members in tops.items():
        ordered = sorted(members, key=place_of)
        steps = tuple(EnsembleStep(m, (f"t{n}",), (f"t{n + 1}",)) for n, m in enumerate(ordered))
        found[top] = replace(unknown(top), steps=steps)
        calls = max(
            (_requests(rows[m]) / _requests(rows[top]) for m in ordered if place_of(m) == 1), default=1.0
        )
        for m in ordered:
            streams = len(tops) == 1 and place_of(m) == 0 and calls >= _STREAMED
            found[m] = replace(unknown(m), decoupled=streams, uses_gpu=place_of(m) == 0)
    return found


def looks_like_ensemble(model: str, rows: Rows) -> bool:
    """Whether what the row calls computing may be other models' doing."""
    return len(rows) > 1 and model in rows and bool(_ENSEMBLE.search(model) or _no_queue(rows[model]))


def _candidates(busy: Sequence[str], rows: Rows) -> dict[str, list[Members]]:
    """For each model that may be an ensemble the sets of others that it may be made of."""
    tops: dict[str, list[Members]] = {}
    for name in sorted(busy, key=lambda one: -_latency_us(rows[one])):
        if any(all(name in members for members in sets) for sets in tops.values()):
            continue  # a member whose time happens to be the sum of others' is one all the same
        if _ENSEMBLE.search(name) or _no_queue(rows[name]):
            sets = _sets(name, [m for m in busy if m != name and m not in tops], rows)
            if sets:
                tops[name] = sets
    return tops


def _sets(top: str, others: Sequence[str], rows: Rows) -> list[Members]:
    """Those whose mean compute times add up to the ensemble's; for one that has none but its name, all that its
    requests could have gone through."""
    enough = [
        m
        for m in others
        if _requests(rows[m]) >= _LEAST * _requests(rows[top])
        and _latency_us(rows[m]) <= _latency_us(rows[top])
    ]
    sizes = range(2, min(len(enough), _MOST) + 1)
    some = chain.from_iterable(combinations(enough[:_MOST], n) for n in sizes)
    close = [s for s in some if _off(rows, top, s) <= _CLOSE]
    if close:
        return close
    return [tuple(enough)] if _ENSEMBLE.search(top) and len(enough) >= 2 else []


def _off(rows: Rows, top: str, members: Members) -> float:
    """By how much the members' time differs from the ensemble's, as a share of it; wholly where it tells none."""
    whole = _compute_us(rows[top])
    return abs(sum(_compute_us(rows[m]) for m in members) / whole - 1.0) if whole > 0 else 1.0


def _explained(rows: Rows, candidates: Mapping[str, Sequence[Members]]) -> dict[str, Members]:
    """The set of each ensemble: together they have to explain how often each member was called. Sums of times alone
    agree by chance."""
    combined = math.prod(len(sets) for sets in candidates.values())
    if not candidates or combined > _MOST_COMBINED:
        return {}
    tops = list(candidates)
    choices = [dict(zip(tops, sets, strict=True)) for sets in product(*candidates.values())]
    errors = [_uncalled(rows, choice) for choice in choices]
    rivals = [choice for choice, e in zip(choices, errors, strict=True) if e <= min(errors) + _CLOSE]
    best = min(rivals, key=lambda choice: sum(_off(rows, top, some) for top, some in choice.items()))
    by_time = all(_off(rows, top, some) <= _CLOSE for top, some in best.items())
    if by_time and min(errors) > _MOST_UNCALLED:
        return {}
    return {top: best[top] for top in tops if all(_same(rows, r[top], best[top]) for r in rivals)}


def _uncalled(rows: Rows, choice: Mapping[str, Members]) -> float:
    """By how much the members' calls differ from those that their ensembles' requests explain, the worst member's."""
    called: dict[str, float] = defaultdict(float)
    for top, members in choice.items():
        for member in members:
            called[member] += _requests(rows[top])
    return max(abs(calls / _requests(rows[m]) - 1.0) for m, calls in called.items())


def _same(rows: Rows, one: Members, other: Members) -> bool:
    """Whether two sets differ in nothing that takes time."""
    differ = set(one) ^ set(other)
    return sum(_compute_us(rows[m]) for m in differ) <= _CLOSE * sum(_compute_us(rows[m]) for m in one)


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
