"""The objects of a pool: servers without GPUs, from the server's own image and repository, that load stages only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slo_operator.api import names
from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.render.arguments import pool_arguments
from slo_operator.render.context import PoolNames, ServerContext, pool_names
from slo_operator.render.kept import KILL_MARGIN_S, PRE_STOP_S
from slo_operator.render.merge import strategic_merge
from slo_operator.render.pod import (
    SHM_PER_INSTANCE_MIB,
    overlay_container,
    pod_security,
    triton_container,
    tuned_container,
    volumes,
)
from slo_operator.render.tuned import settings_to_json
from slo_tuner.settings import ModelSettings, PodSettings

#: requests of a stage take a fraction of a second
DRAIN_S: Final = 15
START_S: Final = 300


@dataclass(frozen=True, slots=True)
class PoolContext:
    """A server's pool: how it is declared, how many replicas are wanted, and the stages with their settings in the
    servers, of which the batch size counts here."""

    server: ServerContext
    declared: PreprocessPool
    replicas: int
    stages: PodSettings

    @property
    def names(self) -> PoolNames:
        return pool_names(self.server.resource, self.server.server.name)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pool's pods, and none of the server's."""
        return self.server.selector | {names.LABEL_SERVER: names.pool_of(self.server.server.name)}

    @property
    def settings(self) -> dict[str, ModelSettings]:
        """What the pool's pods run: a process for each core."""
        return {
            name: ModelSettings(self.declared.resources.processes, stage.max_batch_size)
            for name, stage in sorted(self.stages.items())
        }

    def metadata(self, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        meta = self.server.metadata(name, annotations)
        meta["labels"] |= self.selector
        return meta


def pool_objects(context: PoolContext) -> list[dict[str, Any]]:
    """All objects of the pool, what its pods need first."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": context.metadata(context.names.tuned),
            "data": {names.SETTINGS_KEY: settings_to_json(context.settings)},
        },
        _service(context),
        _disruption_budget(context),
        _network_policy(context),
        _deployment(context),
    ]


def _service(context: PoolContext) -> dict[str, Any]:
    """Headless: the servers choose among the pods themselves."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(context.names.service),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": context.selector,
            "ports": [{"name": "http", "port": names.HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def _disruption_budget(context: PoolContext) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(context.names.budget),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": context.selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _network_policy(context: PoolContext) -> dict[str, Any]:
    """Only the servers ask the pool; its metrics are for all."""
    servers = [{"podSelector": {"matchLabels": context.server.selector}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": context.metadata(context.names.network_policy),
        "spec": {
            "podSelector": {"matchLabels": context.selector},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": servers, "ports": [{"protocol": "TCP", "port": names.HTTP_PORT}]},
                {"ports": [{"protocol": "TCP", "port": names.METRICS_PORT}]},
            ],
        },
    }


def _deployment(context: PoolContext) -> dict[str, Any]:
    template = _pod_template(context)
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:12]
    annotations = {names.ANNOTATION_CONFIG_HASH: digest, names.ANNOTATION_STAGES: ",".join(context.settings)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": context.metadata(context.names.deployment, annotations),
        "spec": {
            "replicas": context.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": START_S + 60,
            "selector": {"matchLabels": context.selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    }


def _pod_template(context: PoolContext) -> dict[str, Any]:
    """The server's `template` counts here too (volumes, environment, tolerations), but neither for where the pods go
    nor for what they hold."""
    server, declared = context.server, context.declared
    settings = settings_to_json(context.settings)
    rendered = {
        "metadata": {
            "labels": server.labels,
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(names.METRICS_PORT),
                "prometheus.io/path": "/metrics",
                # pods read their settings when they start
                f"{names.GROUP}/settings-hash": hashlib.sha256(settings.encode()).hexdigest()[:12],
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "terminationGracePeriodSeconds": PRE_STOP_S + DRAIN_S + KILL_MARGIN_S,
            "initContainers": [
                overlay_container(server.server, declared.image),
                tuned_container(server.overlay_image, gpus=0),
            ],
            "containers": [
                triton_container(
                    server.server,
                    declared.image or server.server.image,
                    server.names.secret,
                    pool_arguments(list(context.settings), DRAIN_S),
                    START_S,
                )
            ],
            "volumes": volumes(
                server.server,
                context.names.tuned,
                SHM_PER_INSTANCE_MIB * declared.resources.processes * max(1, len(context.settings)),
            ),
        },
    }
    merged = strategic_merge(rendered, server.server.template or {})
    merged["metadata"]["labels"] |= context.selector
    merged["spec"]["nodeSelector"] = dict(declared.node_selector)
    for container in merged["spec"]["containers"]:
        if container["name"] == names.CONTAINER:
            container["resources"] = declared.resources.container()
    return merged
