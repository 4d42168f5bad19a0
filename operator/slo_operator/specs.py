"""The InferenceSLOs as kopf's index has them, read from the loop's thread, and whether kopf still hears.

A watch that went silent looks exactly like a quiet cluster (kopf has known such faults). So once a
minute the index is compared with a list from the API server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slo_operator.kube import INFERENCE_SLOS, Kube, KubeError

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
#: comparisons in a row that must differ: one may catch an object on its way
DEAF_AFTER = 3

Bodies = Mapping[tuple[str, str], Mapping[str, Any]]


class Specs:
    """Bridges kopf's event loop and the control loop's thread."""

    def __init__(self, kube: Kube):
        self._kube = kube
        self._loop: asyncio.AbstractEventLoop | None = None
        self._read: Callable[[], Bodies] = dict
        self._synced = False
        self._mismatches = 0
        self._generations: dict[str, int | None] = {}

    def attach(self, loop: asyncio.AbstractEventLoop, read: Callable[[], Bodies]) -> None:
        """Called from kopf's start-up: `read` copies the index and runs inside `loop` only."""
        self._loop, self._read = loop, read

    def is_news(self, uid: str, generation: int | None, *, gone: bool) -> bool:
        """Whether the spec is another one than at the last event. Called in kopf's event loop only."""
        if gone:
            self._generations.pop(uid, None)
            return True
        news = self._generations.get(uid) != generation
        self._generations[uid] = generation
        return news

    def bodies(self) -> Sequence[Mapping[str, Any]] | None:
        """All resources; None until the index once agreed with the API server."""
        if not self._synced:
            self.compare()
        return list(self._snapshot().values()) if self._synced else None

    def deaf(self) -> list[str]:
        return ["inferenceslos"] if self._mismatches >= DEAF_AFTER else []

    def watch(self, stop: threading.Event) -> None:
        """Compare every minute until `stop`."""
        while not stop.wait(CHECK_EVERY_S / DEAF_AFTER if self._mismatches else CHECK_EVERY_S):
            self.compare()

    def compare(self) -> bool:
        """Whether the index holds exactly the resources and generations that the API server lists."""
        try:
            listed = {
                (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["metadata"].get(
                    "generation"
                )
                for page in self._kube.list_pages(INFERENCE_SLOS)
                for item in page.get("items", [])
            }
        except KubeError as error:  # that the API server is away is not deafness
            log.warning("list of inferenceslos: %s", error)
            return False
        indexed = {key: body["metadata"].get("generation") for key, body in self._snapshot().items()}
        same = listed == indexed
        self._mismatches = 0 if same else self._mismatches + 1
        self._synced = self._synced or same
        return same

    def _snapshot(self) -> Bodies:
        if self._loop is None:
            return {}

        async def read() -> Bodies:
            return self._read()

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result(timeout=10)
