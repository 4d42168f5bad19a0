"""Conditions of a resource, set in one place: a reason always, the transition time only on flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slo_operator.api.status import Condition, ConditionStatus, ConditionType, timestamp

_STATUS = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a condition should say now; `holds` None is Unknown."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str = ""


def merge_conditions(
    old: Sequence[Condition], findings: Sequence[Finding], generation: int, now: float
) -> list[Condition]:
    """The new list, in the order of `findings`; a condition that nobody found disappears."""
    before = {c.type: c for c in old}
    out = []
    for finding in findings:
        status = _STATUS[finding.holds]
        known = before.get(finding.type.value)
        same = known is not None and known.status is status
        out.append(
            Condition(
                type=finding.type.value,
                status=status,
                reason=finding.reason,
                message=finding.message,
                last_transition_time=known.last_transition_time if known and same else timestamp(now),
                observed_generation=generation,
            )
        )
    return out


def flipped(old: Sequence[Condition], new: Sequence[Condition]) -> bool:
    """Whether any condition's status or reason differs, or one came or went."""
    return {(c.type, c.status, c.reason) for c in old} != {(c.type, c.status, c.reason) for c in new}
