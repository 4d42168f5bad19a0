"""One tick of the loop at a fixed time, and a memory with a canary in it."""

from __future__ import annotations

from slo_tuner.decide import decide
from slo_tuner.decision import Decision
from slo_tuner.memory import Change, Phase, ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import PoolView, ServerView
from tests.unit.tuner.builders import POOL, SETTINGS

AUTO = Policy(Mode.AUTO, analysis_s=40.0, min_samples=100)
NOW = 10_000.0
FOUR = ModelSettings(4, 16)
TUNED = {**SETTINGS, "preprocessing": FOUR}


def tick(
    view: ServerView,
    memory: ServerMemory | None = None,
    policy: Policy = AUTO,
    now: float = NOW,
    pool: PoolView = POOL,
) -> Decision:
    return decide(view, pool, memory or ServerMemory(), policy, now)


def begun(**changes: object) -> ServerMemory:
    """A canary of four processes on pod a, live since 60 s."""
    values: dict[str, object] = {
        "id": "preprocess_instances|11|x|0|y@9930",
        "lever": "preprocess_instances",
        "settings": {"preprocessing": FOUR},
        "before": {"preprocessing": SETTINGS["preprocessing"]},
        "pods": ("a",),
        "phase": Phase.ANALYSE,
        "since": NOW - 60.0,
        "started": NOW - 70.0,
        "baseline": {"pods": 2.0},
        "live": True,
    }
    change = Change(**{**values, **changes})  # type: ignore[arg-type]
    stable = TUNED if change.phase in (Phase.PROMOTE, Phase.CONFIRM) else SETTINGS
    return ServerMemory(original=SETTINGS, stable=stable, change=change, last_action=NOW - 70.0)
