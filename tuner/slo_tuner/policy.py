"""What the loop may do, and how careful it has to be: the resource's `mode` and `rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Observe: diagnose. Recommend: publish the plan. Auto: carry it out."""

    OBSERVE = "Observe"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


@dataclass(frozen=True, slots=True)
class Policy:
    """One resource's rules. `max_extra_misses` is a share of requests (0.01 = one percentage point)."""

    mode: Mode = Mode.OBSERVE
    suspend: bool = False
    min_samples: int = 500
    analysis_s: float = 120.0
    max_extra_misses: float = 0.01
    reloads_per_hour: int = 12
    interval_s: float = 15.0
    margin: float = 0.1

    @property
    def may_act(self) -> bool:
        return self.mode is Mode.AUTO and not self.suspend
