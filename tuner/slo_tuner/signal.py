"""Three-valued signals: a value, proven idleness, or unknown.

Public autoscalers broke by turning "no data" into 0 (scaled to the minimum at peak) or into a skip
(never scaled down). So the difference is a type here: arithmetic is only possible on a `Value`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """A measured number, how old it is and where it comes from."""

    value: float
    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Idle:
    """Proven absence of traffic: targets up, counters flat, nothing pending."""

    source: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No trustworthy number, and why. Never 0, never a reason to scale down."""

    reason: str


Signal = Value | Idle | Unknown


def value_or_none(signal: Signal) -> float | None:
    """The number of a `Value`; None for everything that must not enter arithmetic."""
    return signal.value if isinstance(signal, Value) else None
