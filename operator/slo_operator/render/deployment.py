"""The Deployment of a server, and the hash that says whether pods have to be replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slo_operator.api import names
from slo_operator.render.context import ServerContext
from slo_operator.render.kept import Kept, fresh, kept_or_fresh
from slo_operator.render.pod import pod_template

#: stands in for what follows from observation, so that it does not move the hash
_NOTHING_OBSERVED = Kept(overlay_image="-", grace_s=60, start_s=600)


def deployment(context: ServerContext, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Deployment. `live` is the one on the cluster: values that would only restart pods for the sake of
    an observation are taken from it while its configuration is unchanged.

    Tuned settings are not part of it: tuning never replaces a pod.
    """
    digest = config_hash(context)
    kept = kept_or_fresh(live, digest, fresh(context.overlay_image, context.observed))
    template = pod_template(context, kept)
    template["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH] = digest
    annotations = {names.ANNOTATION_CONFIG_HASH: digest, names.ANNOTATION_KEPT: kept.to_json()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": context.metadata(context.names.deployment, annotations),
        "spec": {
            "replicas": context.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": kept.start_s + kept.grace_s + 60,
            "selector": {"matchLabels": context.selector},
            "strategy": rolling_update(context.gpu_free),
            "template": template,
        },
    }


def rolling_update(gpu_free: bool) -> dict[str, Any]:
    """With a free GPU the new pod comes first; without one it would wait for ever, so an old pod goes first."""
    surge, unavailable = (1, 0) if gpu_free else (0, 1)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def config_hash(context: ServerContext) -> str:
    """Twelve hex digits over all of the pod template that people decide on: image, repository, template, GPUs,
    and the operator's own way of rendering; not over observed times and the operator's image.
    """
    text = json.dumps(pod_template(context, _NOTHING_OBSERVED), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rollout_is_due(context: ServerContext, live: Mapping[str, Any] | None) -> bool:
    """Whether applying the Deployment would replace pods."""
    if live is None:
        return True
    return (live.get("metadata", {}).get("annotations") or {}).get(
        names.ANNOTATION_CONFIG_HASH
    ) != config_hash(context)
