"""The objects of a pool: servers without GPUs, from the server's own image and repository, that load stages only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slo_operator.api import names
from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.render.arguments import common_arguments
from slo_operator.render.context import ChildNames, ServerContext, child_names
from slo_operator.render.deployment import deployment_of, short_hash, template_hash
from slo_operator.render.kept import KILL_MARGIN_S, PRE_STOP_S
from slo_operator.render.merge import strategic_merge
from slo_operator.render.objects import (
    disruption_budget,
    ingress_policy,
    service,
    tcp,
    tuned_config_map,
)
from slo_operator.render.pod import (
    SHM_PER_INSTANCE_MIB,
    overlay_container,
    pod_metadata,
    pod_spec,
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
    def names(self) -> ChildNames:
        return child_names(self.server.resource, names.pool_of(self.server.server.name))

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
    """All objects of the pool, what its pods need first. Its Service is headless: servers choose among the pods."""
    return [
        tuned_config_map(context, context.settings),
        service(context, context.names.service, [("http", names.HTTP_PORT)], headless=True),
        disruption_budget(context),
        _network_policy(context),
        _deployment(context),
    ]


def _network_policy(context: PoolContext) -> dict[str, Any]:
    """Only the servers ask the pool; its metrics are for all."""
    servers = [{"podSelector": {"matchLabels": context.server.selector}}]
    inference = {"from": servers, "ports": [tcp(names.HTTP_PORT)]}
    return ingress_policy(context, [inference, {"ports": [tcp(names.METRICS_PORT)]}])


def _deployment(context: PoolContext) -> dict[str, Any]:
    template = _pod_template(context)
    annotations = {
        names.ANNOTATION_CONFIG_HASH: template_hash(template),
        names.ANNOTATION_STAGES: ",".join(context.settings),
    }
    return deployment_of(
        context, template, annotations, replicas=context.replicas, deadline_s=START_S + 60, surge=True
    )


def _pod_template(context: PoolContext) -> dict[str, Any]:
    """The server's `template` counts here too (volumes, environment, tolerations), but neither for where the pods go
    nor for what they hold."""
    server, declared, settings = context.server, context.declared, context.settings
    container = triton_container(
        server.server,
        declared.image or server.server.image,
        server.names.secret,
        common_arguments(list(settings), DRAIN_S),
        START_S,
    )
    shm_mib = SHM_PER_INSTANCE_MIB * declared.resources.processes * max(1, len(settings))
    rendered = {
        "metadata": pod_metadata(server.labels),
        "spec": pod_spec(
            declared.node_selector,
            PRE_STOP_S + DRAIN_S + KILL_MARGIN_S,
            [overlay_container(server.server, declared.image), tuned_container(server.overlay_image, gpus=0)],
            container,
            volumes(server.server, context.names.tuned, shm_mib),
        ),
    }
    # pods read their settings when they start
    rendered["metadata"]["annotations"][f"{names.GROUP}/settings-hash"] = short_hash(
        settings_to_json(settings)
    )
    merged = strategic_merge(rendered, server.server.template or {})
    merged["metadata"]["labels"] |= context.selector
    merged["spec"]["nodeSelector"] = dict(declared.node_selector)
    for one in merged["spec"]["containers"]:
        if one["name"] == names.CONTAINER:
            one["resources"] = declared.resources.container()
    return merged
