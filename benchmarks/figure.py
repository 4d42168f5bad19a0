"""One line of the result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit and what it says."""

    subject: str
    name: str
    value: float
    unit: str
    says: str = ""
