"""Which pod gets the next request: the one with the fewest outstanding, in turn where several have as few."""

from __future__ import annotations

from collections.abc import Collection


class LeastOutstanding:
    """Endpoints with their outstanding requests. Pure: no clock, no I/O.

    An endpoint that vanishes gets nothing new; what it still works on is counted until done.
    """

    def __init__(self) -> None:
        self._order: list[str] = []
        self._outstanding: dict[str, int] = {}
        self._next = 0

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Endpoints that may get requests."""
        return tuple(self._order)

    def outstanding(self) -> dict[str, int]:
        """Requests sent and not yet answered, draining endpoints included."""
        return dict(self._outstanding)

    def update(self, endpoints: Collection[str]) -> None:
        """Make `endpoints` the ones that may get requests; known ones keep their place and count."""
        kept = [endpoint for endpoint in self._order if endpoint in endpoints]
        fresh = sorted(set(endpoints) - set(kept))
        gone = set(self._order) - set(endpoints)
        self._order = kept + fresh
        for endpoint in fresh:
            self._outstanding.setdefault(endpoint, 0)
        for endpoint in gone:
            if self._outstanding[endpoint] == 0:
                del self._outstanding[endpoint]

    def acquire(self, avoid: Collection[str] = ()) -> str | None:
        """The endpoint for the next request, counted as outstanding; None when there is none.

        `avoid` are endpoints that just refused a connection.
        """
        count = len(self._order)
        best: int | None = None
        for step in range(count):
            at = (self._next + step) % count
            endpoint = self._order[at]
            if endpoint not in avoid and (
                best is None or self._outstanding[endpoint] < self._outstanding[self._order[best]]
            ):
                best = at
        if best is None:
            return None
        self._next = (best + 1) % count
        chosen = self._order[best]
        self._outstanding[chosen] += 1
        return chosen

    def release(self, endpoint: str) -> None:
        """A request to `endpoint` was answered, or failed."""
        self._outstanding[endpoint] -= 1
        if self._outstanding[endpoint] == 0 and endpoint not in self._order:
            del self._outstanding[endpoint]
