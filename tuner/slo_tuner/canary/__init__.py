"""Better, worse or inconclusive: the pod with the new setting against its peers over the same minutes."""

from slo_tuner.canary.verdict import (
    MAX_LOOKS,
    SETTLE_S,
    Comparison,
    Finding,
    blocks_per_look,
    compare,
    confirm,
)

__all__ = ["MAX_LOOKS", "SETTLE_S", "Comparison", "Finding", "blocks_per_look", "compare", "confirm"]
