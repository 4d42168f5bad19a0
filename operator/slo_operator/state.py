"""What the loop remembers of a server, kept in a ConfigMap that is written before anything is done.

Deleting it is safe: the loop then starts from what is live.
"""

from __future__ import annotations

import logging

from slo_operator.act.apply import Applier
from slo_operator.act.events import Subject
from slo_operator.api.names import MEMORY_KEY, SETTINGS_KEY
from slo_operator.kube import CONFIG_MAPS
from slo_operator.observe.cluster import Cluster
from slo_operator.render.context import ServerContext, child_names
from slo_operator.render.objects import state_config_map
from slo_operator.render.tuned import settings_from_json
from slo_tuner.codec import memory_from_json, memory_to_json
from slo_tuner.memory import ServerMemory
from slo_tuner.settings import PodSettings

#: the configuration that the memory is about
HASH_KEY = "config-hash"

log = logging.getLogger(__name__)


class MemoryStore:
    """Reads from the cache (which knows our own writes at once) and writes by server-side apply."""

    def __init__(self, cluster: Cluster, applier: Applier):
        self._cluster = cluster
        self._applier = applier

    def load(self, namespace: str, resource: str, server: str, uid: str, config_hash: str) -> ServerMemory:
        """The server's memory; an empty one when there is none, or none that can be read.

        What was learned of another configuration (image, repository, template) does not hold for this
        one: of that only the numbers of replicas are kept.
        """
        name = child_names(resource, server).state
        text = self._text(namespace, name, uid, MEMORY_KEY)
        if text is None:
            return ServerMemory()
        try:
            memory = memory_from_json(text)
        except ValueError as error:
            log.warning("memory of %s/%s %s: %s; starting afresh", namespace, resource, server, error)
            return ServerMemory()
        if self._text(namespace, name, uid, HASH_KEY) not in (None, config_hash):
            return ServerMemory(replicas=memory.replicas, pool=memory.pool)
        return memory

    def save(self, subject: Subject, context: ServerContext, memory: ServerMemory, config_hash: str) -> bool:
        """Write it when it differs from what is stored. Raises KubeError, NotOursError."""
        body = state_config_map(context, memory_to_json(memory))
        body["data"][HASH_KEY] = config_hash
        return self._applier.apply(subject, body, always=True)

    def tuned(self, namespace: str, resource: str, server: str, uid: str) -> PodSettings:
        """What pods of this server come up with now; empty when nothing is tuned or readable."""
        text = self._text(namespace, child_names(resource, server).tuned, uid, SETTINGS_KEY)
        if text is None:
            return {}
        try:
            return settings_from_json(text)
        except ValueError as error:
            log.warning("tuned settings of %s/%s %s: %s; taken as empty", namespace, resource, server, error)
            return {}

    def _text(self, namespace: str, name: str, uid: str, key: str) -> str | None:
        record = self._cluster.children[CONFIG_MAPS.kind].get(namespace, name)
        if record is None or record.meta.owner != uid:
            return None
        return record.data.get(key)
