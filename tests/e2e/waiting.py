"""Waiting for what a cluster does in its own time: by polling, within a generous limit."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    what: str | Callable[[], str], look: Callable[[], T | None], seconds: float = 90.0, pause: float = 1.0
) -> T:
    """The first true answer of `look`; fails with `what` (asked then, if it is a function) after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")
        time.sleep(pause)


def eventually(what: str | Callable[[], str], look: Callable[[], T | None]) -> T:
    """`until` for what a node does within a minute."""
    return until(what, look, seconds=60.0, pause=0.3)
