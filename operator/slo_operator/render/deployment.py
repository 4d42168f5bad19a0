"""The Deployment of a server, and the hash that says whether pods have to be replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slo_operator.api import names
from slo_operator.render.context import Rendered, ServerContext
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
    return deployment_of(
        context,
        template,
        annotations,
        replicas=context.replicas,
        deadline_s=kept.start_s + kept.grace_s + 60,
        surge=context.gpu_free,
    )


def deployment_of(
    context: Rendered,
    template: dict[str, Any],
    annotations: Mapping[str, str],
    *,
    replicas: int,
    deadline_s: int,
    surge: bool,
) -> dict[str, Any]:
    """A Deployment of this pod template; a rollout that makes no progress for `deadline_s` says so."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": context.metadata(context.names.deployment, annotations),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": deadline_s,
            "selector": {"matchLabels": context.selector},
            "strategy": rolling_update(surge),
            "template": template,
        },
    }


def rolling_update(room: bool) -> dict[str, Any]:
    """With room for it (a free GPU) the new pod comes first; without, it would wait for ever, so an old pod goes
    first."""
    surge, unavailable = (1, 0) if room else (0, 1)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def config_hash(context: ServerContext) -> str:
    """Twelve hex digits over all of the pod template that people decide on: image, repository, template, GPUs,
    and the operator's own way of rendering; not over observed times and the operator's image.
    """
    return template_hash(pod_template(context, _NOTHING_OBSERVED))


def template_hash(template: Mapping[str, Any]) -> str:
    """Equal templates have equal hashes, whatever the order of their fields."""
    return short_hash(json.dumps(template, sort_keys=True))


def short_hash(text: str) -> str:
    """Twelve hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rollout_is_due(context: ServerContext, live: Mapping[str, Any] | None) -> bool:
    """Whether applying the Deployment would replace pods."""
    if live is None:
        return True
    return (live.get("metadata", {}).get("annotations") or {}).get(
        names.ANNOTATION_CONFIG_HASH
    ) != config_hash(context)
