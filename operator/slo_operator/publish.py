"""Writing status: by server-side apply of the sub-resource, and only when there is something to say."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slo_operator.api.names import API_VERSION, KIND
from slo_operator.api.resource import InferenceSLO, parse_status
from slo_operator.api.status import InferenceSLOStatus
from slo_operator.kube import INFERENCE_SLOS, Kube, KubeError
from slo_operator.outcome import ResourceOutcome, ServerOutcome
from slo_operator.status import last_written, next_status

log = logging.getLogger(__name__)


class Publisher:
    """Keeps what it wrote last, since the watch may lag behind our own writes."""

    def __init__(self, kube: Kube, clock: Callable[[], float]):
        self._kube = kube
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[InferenceSLOStatus, float]] = {}
        #: statuses written, for the operator's own metrics
        self.writes = 0

    def publish(self, resource: InferenceSLO, servers: Sequence[ServerOutcome]) -> bool:
        """Write this tick's status if it says something new. Raises KubeError."""
        outcome = ResourceOutcome(resource.generation, resource.spec.suspend, tuple(servers))
        return self._write(resource.namespace, resource.name, resource.uid, resource.status, outcome)

    def invalid(self, body: Mapping[str, Any], problems: Sequence[str]) -> None:
        """A spec that passed the API server's schema and cannot be read all the same."""
        meta = body["metadata"]
        outcome = ResourceOutcome(
            generation=int(meta.get("generation", 0)),
            suspend=body.get("spec", {}).get("suspend") is True,
            invalid=tuple(problems),
        )
        try:
            self._write(
                meta.get("namespace", ""),
                meta["name"],
                meta.get("uid", ""),
                parse_status(body.get("status")),
                outcome,
            )
        except KubeError as error:
            log.warning("%s/%s: status: %s", meta.get("namespace"), meta.get("name"), error)

    def failed(self, resource: InferenceSLO, error: Exception) -> None:
        """Acting broke down in a way that nobody foresaw: say so on the resource."""
        text = f"{type(error).__name__}: {error}"
        servers = [ServerOutcome(server=s, stalled=text) for s in resource.spec.servers]
        try:
            self.publish(resource, servers)
        except KubeError as second:
            log.warning("%s/%s: status: %s", resource.namespace, resource.name, second)

    def forget_all_but(self, uids: set[str]) -> None:
        with self._lock:
            self._last = {uid: entry for uid, entry in self._last.items() if uid in uids}

    def _write(
        self, namespace: str, name: str, uid: str, seen: InferenceSLOStatus, outcome: ResourceOutcome
    ) -> bool:
        now = self._clock()
        with self._lock:
            old, at = self._last.get(uid, (seen, last_written(seen.conditions, seen)))
        new = next_status(old, outcome, now, at)
        if new is None:
            with self._lock:
                self._last.setdefault(uid, (old, at))
            return False
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"namespace": namespace, "name": name},
            "status": without_empty(new.to_json()),
        }
        try:
            self._kube.apply(INFERENCE_SLOS, body, force=True, subresource="status")
        except KubeError as error:
            if error.not_found:  # deleted meanwhile: nobody is left to tell
                return False
            raise
        with self._lock:
            self._last[uid] = (new, now)
            self.writes += 1
        return True


def without_empty(value: Any) -> Any:
    """Leave out empty maps and lists: server-side apply turns a map that we emptied into null, which the
    schema then refuses (seen on 1.34).
    """
    if isinstance(value, dict):
        kept = {k: without_empty(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v not in ({}, [])}
    if isinstance(value, list):
        return [without_empty(v) for v in value]
    return value
