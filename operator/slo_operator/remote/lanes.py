"""Requests by their size: classes in which they are counted, and members that only long ones go to.

The lane is a matter of the members' order alone, so all servers agree on it without telling each other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

#: bounds of the classes in bytes, each twice the one before
SMALLEST, LARGEST = 512, 1 << 20


class LongLane(NamedTuple):
    """Requests of `from_bytes` and more go to the last `members` of the pool, all others to the rest."""

    from_bytes: int
    members: int

    def of(self, addresses: Collection[str], size: int) -> frozenset[str]:
        """The members for a request of that size; all of them while there are too few for two lanes."""
        ordered = sorted(addresses)
        if len(ordered) <= self.members:
            return frozenset(ordered)
        cut = len(ordered) - self.members
        return frozenset(ordered[cut:] if size >= self.from_bytes else ordered[:cut])


def size_class(size: int) -> str:
    """The bound below which the size is: a power of two, as text; `+Inf` from the largest on."""
    if size >= LARGEST:
        return "+Inf"
    return str(max(SMALLEST, 1 << size.bit_length()))
