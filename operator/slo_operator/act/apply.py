"""Server-side apply of our children: only when something differs, forced only for what is ours.

What differs is known without comparing fields: after a write the digest of what the API server
answered is kept beside the digest of the wish. While both stay the same nothing has to be done; when
either changed, applying again is right, and changes nothing where nothing is wrong.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slo_operator.act.events import EventRecorder, Subject
from slo_operator.kube import CHILD_RESOURCES, Kube, KubeError
from slo_operator.observe.records import Meta, digest, project_meta

log = logging.getLogger(__name__)

CONTESTED_TIMES = 3
CONTESTED_WITHIN_S = 600.0
#: how long a contested object is left alone
SLOW_DOWN_S = 600.0

_Key = tuple[str, str, str]


class Observed(Protocol):
    """A child as the cache has it."""

    @property
    def meta(self) -> Meta: ...

    @property
    def digest(self) -> str: ...


class ChildCache(Protocol):
    """The reflectors, as far as applying needs them."""

    def observed(self, kind: str, namespace: str, name: str) -> Observed | None: ...

    def put(self, kind: str, body: Mapping[str, Any]) -> None: ...


class NotOursError(Exception):
    """An object of that name exists and belongs to someone else: it is never touched."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Someone keeps changing what we own."""

    child: str
    message: str


class Applier:
    """Applies children and remembers what it left behind. Safe for several threads."""

    def __init__(self, kube: Kube, cache: ChildCache, events: EventRecorder, clock: Callable[[], float]):
        self._kube = kube
        self._cache = cache
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[_Key, tuple[str, str]] = {}
        self._repairs: dict[_Key, list[float]] = {}
        self._contests: dict[_Key, tuple[float, Contest]] = {}
        #: writes that changed something, for the operator's own metrics
        self.writes = 0

    def apply(self, subject: Subject, body: Mapping[str, Any], *, always: bool = False) -> bool:
        """Make the child as wished; whether anything was written. Raises KubeError, NotOursError.

        `always`: also while the object is contested (what must be remembered is written all the same).
        """
        kind, meta = str(body["kind"]), body["metadata"]
        key = (kind, str(meta["namespace"]), str(meta["name"]))
        wish = _hash(body)
        observed = self._cache.observed(*key)
        if observed is not None and self._left.get(key) == (wish, observed.digest):
            return False
        if not always and self.contest(key) is not None:
            return False
        before = self._owned_before(subject, key, observed)
        try:
            answer = self._kube.apply(CHILD_RESOURCES[kind], body)
            takers = ""
        except KubeError as error:
            if not error.conflict or not error.causes:
                raise
            takers = "; ".join(f"{field}: {message}" for field, message in error.causes)
            answer = self._kube.apply(CHILD_RESOURCES[kind], body, force=True)
        self._cache.put(kind, answer)
        written = before is None or project_meta(answer).version != before.version
        same_wish = self._left.get(key, ("", ""))[0] == wish
        with self._lock:
            self._left[key] = (wish, digest(answer))
            self.writes += written
        if written and before is not None and (takers or same_wish):
            self._repaired(subject, key, takers)
        return written

    def contest(self, key: _Key) -> Contest | None:
        """The dispute over this object while we hold back because of it."""
        with self._lock:
            until, contest = self._contests.get(key, (0.0, None))
            if contest is not None and self._clock() >= until:
                del self._contests[key]
                return None
            return contest

    def contests(self, namespace: str, names: set[str]) -> list[Contest]:
        """Disputes over any of these objects."""
        keys = [k for k in list(self._contests) if k[1] == namespace and k[2] in names]
        return [c for c in (self.contest(k) for k in keys) if c is not None]

    def forget(self, namespace: str, name: str, kind: str) -> None:
        """The object is gone on purpose."""
        with self._lock:
            self._left.pop((kind, namespace, name), None)

    def _owned_before(self, subject: Subject, key: _Key, observed: Observed | None) -> Meta | None:
        """The existing object's identity, None when there is none. Raises NotOursError."""
        kind, namespace, name = key
        if observed is not None:
            meta = observed.meta
        else:  # the cache holds only what carries our label
            try:
                meta = project_meta(self._kube.get(CHILD_RESOURCES[kind], namespace, name))
            except KubeError as error:
                if error.not_found:
                    return None
                raise
        if meta.owner != subject.uid:
            whose = "is being deleted" if meta.terminating else "does not belong to this resource"
            raise NotOursError(
                f"{kind} {namespace}/{name} exists and {whose}; rename the server, or remove the {kind}"
            )
        return meta

    def _repaired(self, subject: Subject, key: _Key, takers: str) -> None:
        kind, _, name = key
        now = self._clock()
        with self._lock:
            times = [t for t in self._repairs.get(key, []) if now - t < CONTESTED_WITHIN_S] + [now]
            self._repairs[key] = times
            contested = len(times) >= CONTESTED_TIMES
            if contested:
                why = takers or "fields that the operator owns were removed"
                text = (
                    f"{kind} {name}: changed by others {len(times)} times in {CONTESTED_WITHIN_S / 60:.0f} min"
                    f" ({why}); left alone for {SLOW_DOWN_S / 60:.0f} min"
                )
                self._contests[key] = (now + SLOW_DOWN_S, Contest(f"{kind}/{name}", text))
        if contested:
            self._events.warning(subject, "FieldContested", text)
        else:
            self._events.normal(
                subject,
                "Repaired",
                f"{kind} {name}: put back what was changed by hand ({takers or 'removed'})",
            )


def _hash(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
