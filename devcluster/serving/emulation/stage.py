"""Holding a process for as long as its emulated work takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .account import Account

#: While others slow us down they may leave at any moment: look again this often.
CONTENDED_STEP_SECONDS = 0.005
#: What is left below this is nothing (and may be less than the clock can show).
RESOLUTION_SECONDS = 1e-6
#: Two executions this close together ran back to back: the second one repays the first one's lateness.
BACK_TO_BACK_SECONDS = 0.005
#: More lateness than this is a stalled machine, not timer noise, and is not repaid.
MAX_REPAID_SECONDS = 0.020


class Stage:
    """One model instance's executions on one resource of the account.

    The real work (tokenizing, serialising) runs inside `running`; `until` then holds the process until the
    emulated amount of undisturbed time has passed *since the start*. Ends are deadlines in virtual time, so
    that the host's noise does not add up over a queue of requests: what one execution was late is taken
    off the next when that follows at once.
    """

    def __init__(
        self,
        account: Account,
        resource: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._account = account
        self._resource = resource
        self._clock = clock
        self._sleep = sleep
        self._ended = float("-inf")
        self._late = 0.0
        self._begun = 0.0
        self._target: float | None = None

    @contextmanager
    def running(self, weight: float) -> Iterator[None]:
        """Occupy the resource with `weight` (cores, or busy share of a GPU) inside the with block."""
        back_to_back = self._clock() - self._ended <= BACK_TO_BACK_SECONDS
        progress = self._account.start(self._resource, weight)
        self._begun = progress.virtual - (self._late if back_to_back else 0.0)
        self._target = None
        try:
            yield
        finally:
            virtual = self._account.stop()
            late = 0.0 if self._target is None else virtual - self._target
            self._late = late if 0.0 < late <= MAX_REPAID_SECONDS else 0.0
            self._ended = self._clock()

    def until(self, seconds: float) -> None:
        """Return once `seconds` of undisturbed execution have passed since the start of `running`."""
        self._target = self._begun + seconds
        while True:
            progress = self._account.progress(self._resource)
            left = self._target - progress.virtual
            if left <= RESOLUTION_SECONDS:
                return
            if progress.rate < 1:
                self._sleep(min(left / progress.rate, CONTENDED_STEP_SECONDS))
            else:
                self._sleep(left)
