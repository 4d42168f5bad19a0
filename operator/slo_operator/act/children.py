"""The children of a server: rendered, applied, and removed when the spec no longer has the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from slo_operator.act.apply import Applier
from slo_operator.act.events import Subject
from slo_operator.kube import CHILD_RESOURCES, SECRETS, Kube, KubeError
from slo_operator.observe.cluster import Cluster
from slo_operator.observe.records import DeploymentRecord, project_meta
from slo_operator.render.context import ServerContext, child_names
from slo_operator.render.objects import admin_key_of, control_secret, new_admin_key, server_objects
from slo_operator.render.stage_pool import PoolContext, pool_objects
from slo_tuner.settings import PodSettings

KEY_TTL_S = 60.0


class ControlKeys:
    """The key of each server's model control: read, kept for a minute, made when there is none."""

    def __init__(self, kube: Kube, clock: Callable[[], float]):
        self._kube = kube
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[tuple[str, str], tuple[float, str]] = {}

    def read(self, namespace: str, secret: str) -> str:
        """The key, "" when there is none yet. Raises KubeError."""
        with self._lock:
            at, key = self._keys.get((namespace, secret), (float("-inf"), ""))
        if key and self._clock() - at < KEY_TTL_S:
            return key
        try:
            found = admin_key_of(self._kube.get(SECRETS, namespace, secret)) or ""
        except KubeError as error:
            if not error.not_found:
                raise
            found = ""
        self._keep(namespace, secret, found)
        return found

    def ensure(self, context: ServerContext) -> str:
        """The key; a new one is written when the Secret is missing or unusable. Raises KubeError."""
        key = self.read(context.namespace, context.names.secret)
        if not key:
            key = new_admin_key()
            self._kube.apply(SECRETS, control_secret(context, key), force=True)
            self._keep(context.namespace, context.names.secret, key)
        return key

    def _keep(self, namespace: str, secret: str, key: str) -> None:
        with self._lock:
            if key:
                self._keys[namespace, secret] = (self._clock(), key)
            else:
                self._keys.pop((namespace, secret), None)


def reconcile_children(
    applier: Applier,
    keys: ControlKeys,
    subject: Subject,
    context: ServerContext,
    tuned: PodSettings,
    deployment: DeploymentRecord | None,
) -> int:
    """Bring every child to its wished state, what pods need first; how many were written.

    Raises KubeError or NotOursError at the first child that cannot be applied.
    """
    key = keys.ensure(context)
    live = {"metadata": {"annotations": dict(deployment.annotations)}} if deployment else None
    objects = [o for o in server_objects(context, key, tuned, live) if o["kind"] != SECRETS.kind]
    return sum(applier.apply(subject, body) for body in objects)


def reconcile_pool(applier: Applier, subject: Subject, context: PoolContext) -> int:
    """Bring the pool's objects to their wished state; how many were written. Raises as `reconcile_children`."""
    return sum(applier.apply(subject, body) for body in pool_objects(context))


def prune(kube: Kube, cluster: Cluster, applier: Applier, subject: Subject, wanted: set[str]) -> list[str]:
    """Delete the children of servers and pools that are not `wanted`; returns what was deleted."""
    gone: set[str] = set()
    deleted = []
    for kind, record in cluster.children_of(subject.uid):
        if record.server and record.server not in wanted and not record.terminating:
            kube.delete(CHILD_RESOURCES[kind], record.namespace, record.name, record.uid)
            applier.forget(record.namespace, record.name, kind)
            gone.add(record.server)
            deleted.append(f"{kind} {record.name}")
    for server in gone:
        secret = child_names(subject.name, server).secret
        body = _owned_secret(kube, subject, secret)
        if body is not None:
            kube.delete(SECRETS, subject.namespace, secret, project_meta(body).uid)
            deleted.append(f"Secret {secret}")
    return deleted


def _owned_secret(kube: Kube, subject: Subject, name: str) -> Mapping[str, Any] | None:
    try:
        body = kube.get(SECRETS, subject.namespace, name)
    except KubeError as error:
        if error.not_found:
            return None
        raise
    return body if project_meta(body).owner == subject.uid else None
