"""From a tick's outcome to the status. Pure: previous status and outcome in, next status out.

A steady state must write nothing, so figures are taken over only on a decision, a condition's flip, a
change that matters (more than 10 %), or every ten minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slo_operator.api.status import (
    HISTORY_LIMIT,
    Condition,
    DecisionStatus,
    InferenceSLOStatus,
    Summary,
    timestamp,
)
from slo_operator.api.types import Duration, format_latency
from slo_operator.conditions import flipped, merge_conditions
from slo_operator.findings import findings
from slo_operator.outcome import ResourceOutcome, ServerOutcome
from slo_operator.status_models import finite, model_statuses, server_status, short

REFRESH_S = 600.0
RELATIVE = 0.10
#: changes below these are noise whatever their share: seconds, share of one, other numbers
SMALL_S = 0.005
SMALL_SHARE = 0.02
SMALL_NUMBER = 1.0

#: text whose numbers follow the figures beside it
_FOLLOWERS = {"message", "why", "evidence", "interval", "requests", "time", "since", "lastTransitionTime"}
#: a figure with its unit: the only texts in which a number is compared
_FIGURE = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|%)?")


def next_status(
    old: InferenceSLOStatus, outcome: ResourceOutcome, now: float, written_at: float
) -> InferenceSLOStatus | None:
    """The status to write, None when the old one may stand. `written_at`: when it was last written."""
    new = build(old, outcome, now)
    acted = any(s.decision is not None and s.decision.acted for s in outcome.servers)
    if (
        acted
        or new.observed_generation != old.observed_generation
        or flipped(old.conditions, new.conditions)
        or now - written_at >= REFRESH_S
        or differs(old.to_json(), new.to_json())
    ):
        return new if new != old else None
    return None


def build(old: InferenceSLOStatus, outcome: ResourceOutcome, now: float) -> InferenceSLOStatus:
    """The full status of this tick. What a tick without a view cannot know is carried over."""
    conditions = merge_conditions(old.conditions, findings(outcome), outcome.generation, now)
    if outcome.invalid:  # nothing was observed under this spec: keep what was known, and say what is wrong
        return old.model_copy(update={"conditions": conditions, "observed_generation": outcome.generation})
    decisions = _decisions(outcome.servers, now)
    acted = [d for d, s in decisions if s.decision is not None and s.decision.acted]
    unseen = {s.server.name for s in outcome.servers if s.view is None or s.decision is None}
    models = [m for m in old.models if m.server in unseen]
    models += [m for s in outcome.servers for m in model_statuses(s)]
    return InferenceSLOStatus(
        observed_generation=outcome.generation,
        summary=_summary(outcome.servers, old.summary),
        conditions=conditions,
        servers=[server_status(s, now) for s in outcome.servers],
        models=models,
        last_decision=_last(old, decisions),
        history=[*reversed(acted), *old.history][:HISTORY_LIMIT],
    )


def _decisions(servers: Iterable[ServerOutcome], now: float) -> list[tuple[DecisionStatus, ServerOutcome]]:
    return [
        (
            DecisionStatus(
                time=timestamp(now),
                server=s.server.name,
                reason=s.decision.reason.value,
                message=s.decision.message,
                lever=short(s.decision.lever),
                evidence=finite(s.decision.evidence),
            ),
            s,
        )
        for s in servers
        if s.decision is not None
    ]


def _last(
    old: InferenceSLOStatus, decisions: Sequence[tuple[DecisionStatus, ServerOutcome]]
) -> DecisionStatus | None:
    """The latest decision that acted, else the first server's; its time moves only with its reason."""
    if not decisions:
        return old.last_decision
    acting = [d for d, s in decisions if s.decision is not None and s.decision.acted]
    latest = acting[-1] if acting else decisions[0][0]
    before = old.last_decision
    if not acting and before is not None and (before.reason, before.server) == (latest.reason, latest.server):
        return latest.model_copy(update={"time": before.time})
    return latest


def _summary(servers: Sequence[ServerOutcome], old: Summary | None) -> Summary:
    worst: tuple[float, str] | None = None
    bottleneck = None
    for outcome in servers:
        if outcome.decision is None:
            continue
        assessment = outcome.decision.assessment
        for o in assessment.objectives:
            if o.observed_s is None or not o.target_s:
                continue
            ratio = o.observed_s / o.target_s
            if worst is None or ratio > worst[0]:
                worst = ratio, f"{format_latency(o.observed_s)}/{format_latency(o.target_s)}"
        if bottleneck in (None, "None") and assessment.bottleneck is not None:
            bottleneck = assessment.bottleneck.reason.value
    gpus = sum(p.gpus for s in servers if s.view is not None for p in s.view.pods)
    if all(s.view is None for s in servers) and old is not None:
        return old
    return Summary(p99=worst[1] if worst else None, bottleneck=bottleneck, gpus=gpus)


def differs(old: Any, new: Any, key: str = "") -> bool:
    """Whether two JSON trees differ in more than noise."""
    if key in _FOLLOWERS:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return any(differs(old.get(k), new.get(k), k) for k in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(differs(a, b) for a, b in zip(old, new, strict=True))
    if isinstance(old, str) and isinstance(new, str):
        return _text_differs(old, new, key)
    return bool(old != new)  # counts of pods, GPUs, instances: exact


def _text_differs(old: str, new: str, key: str) -> bool:
    """Figures such as 262ms/300ms part by part; all other text must be equal."""
    if old == new:
        return False
    before, after = old.split("/"), new.split("/")
    if len(before) != len(after):
        return True
    for a, b in zip(before, after, strict=True):
        x, y = _figure(a, key), _figure(b, key)
        if x is None or y is None or x[1] != y[1]:
            if a != b:
                return True
        elif _far(x[0], y[0], x[1]):
            return True
    return False


def _figure(text: str, key: str) -> tuple[float, float] | None:
    """(value, size below which a difference is noise)."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        return None
    if match[2] == "%":
        return float(match[1]) / 100, SMALL_SHARE
    if match[2]:
        return Duration(text.strip()).seconds, SMALL_S
    return (float(match[1]), SMALL_NUMBER) if key == "rate" else None


def _far(a: float, b: float, small: float) -> bool:
    return abs(a - b) > max(small, RELATIVE * max(abs(a), abs(b)))


def last_written(conditions: Sequence[Condition], status: InferenceSLOStatus) -> float:
    """When this status was written at the earliest, from the times inside it; 0 for an empty one."""
    times = [c.last_transition_time for c in conditions]
    if status.last_decision is not None:
        times.append(status.last_decision.time)
    return max((_seconds(t) for t in times), default=0.0)


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
