"""Events on the resource: what the loop did and why, each said once in ten minutes."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from slo_operator.api.names import API_VERSION, FIELD_MANAGER, KIND
from slo_operator.kube import EVENTS, Kube, KubeError

log = logging.getLogger(__name__)

REPEAT_AFTER_S = 600.0
MAX_NOTE = 1024
_MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Subject:
    """The InferenceSLO that an event is about."""

    namespace: str
    name: str
    uid: str


class EventRecorder:
    """Posts events; one that cannot be posted is logged and never disturbs the loop."""

    def __init__(self, kube: Kube, clock: Callable[[], float], instance: str):
        self._kube = kube
        self._clock = clock
        self._instance = instance
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}

    def normal(self, subject: Subject, reason: str, note: str, action: str = "Reconcile") -> bool:
        return self._post(subject, "Normal", reason, note, action)

    def warning(self, subject: Subject, reason: str, note: str, action: str = "Reconcile") -> bool:
        return self._post(subject, "Warning", reason, note, action)

    def _post(self, subject: Subject, kind: str, reason: str, note: str, action: str) -> bool:
        now = self._clock()
        text = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
        key = hashlib.sha256(f"{subject.uid}|{reason}|{text}".encode()).hexdigest()[:16]
        with self._lock:
            if now - self._said.get(key, float("-inf")) < REPEAT_AFTER_S:
                return False
            if len(self._said) >= _MAX_REMEMBERED:
                self._said = {k: t for k, t in self._said.items() if now - t < REPEAT_AFTER_S}
            self._said[key] = now
        try:
            self._kube.create(EVENTS, self._body(subject, kind, reason, text, action, now, key))
        except KubeError as error:
            log.warning("event %s on %s/%s: %s", reason, subject.namespace, subject.name, error)
            return False
        return True

    def _body(
        self, subject: Subject, kind: str, reason: str, note: str, action: str, now: float, key: str
    ) -> dict[str, object]:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{subject.name}.{key}.{int(now):x}",
                "namespace": subject.namespace,
            },
            "eventTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "reportingController": f"inferenceslo.dev/{FIELD_MANAGER}",
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
        }
