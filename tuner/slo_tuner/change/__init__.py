"""A change in flight, one tick further: on one pod → compared → pod by pod → confirmed, or undone."""

from __future__ import annotations

from slo_tuner.change.steps import abandon, begin, bring_home, carry_on, withdraw

__all__ = ["abandon", "begin", "bring_home", "carry_on", "withdraw"]
