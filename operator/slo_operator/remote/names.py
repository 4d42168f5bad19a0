"""The members of the pool, by the name of its headless Service."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

#: a list older than this is asked for again, while the old one is still used
FRESH_S = 1.0
#: without an answer of any kind the last list is believed this long
BELIEVED_S = 30.0


def look_up(host: str) -> list[str]:
    """Every address of a name; empty when the name has none. OSError when there is no answer."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return []  # a headless Service without ready pods
        raise
    return sorted({str(address[0]) for *_, address in found})


class Names:
    """The addresses of a host, looked up beside the requests that need them."""

    def __init__(
        self,
        host: str,
        ask: Callable[[str], list[str]] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._host = host
        self._ask = ask
        self._clock = clock
        self._addresses: list[str] = []
        self._answered: float | None = None
        self._asked = float("-inf")
        self._looking: threading.Thread | None = None

    def addresses(self) -> list[str]:
        """Those of the latest answer; the first call waits for it. For one thread."""
        if self._answered is None:
            self._look()
        elif self._clock() - self._asked > FRESH_S and not (self._looking and self._looking.is_alive()):
            self._looking = threading.Thread(target=self._look, name="names", daemon=True)
            self._looking.start()
        return list(self._addresses)

    def _look(self) -> None:
        now = self._asked = self._clock()
        try:
            self._addresses = self._ask(self._host)
            self._answered = now
        except OSError:
            if self._answered is None or now - self._answered > BELIEVED_S:
                self._addresses = []
