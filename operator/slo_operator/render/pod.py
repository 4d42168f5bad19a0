"""The pod of a server: two init containers that lay the tuned settings over the repository, and tritonserver."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from slo_operator.api import names
from slo_operator.api.model import Stages
from slo_operator.api.spec import Server
from slo_operator.render.arguments import OVERLAY_PATH, server_arguments
from slo_operator.render.context import ServerContext, child_names
from slo_operator.render.kept import PRE_STOP_S, Kept
from slo_operator.render.merge import strategic_merge
from slo_tuner.levers.preprocess_pool import MOST_WAITING

REPOSITORY_PATH: Final = "/repository"
TUNED_PATH: Final = "/tuned"

#: NVIDIA's images have this user; any other that is not root works as well
RUN_AS: Final = 1000

#: shared memory that one Python instance takes on one device
SHM_PER_INSTANCE_MIB: Final = 64
#: instances of the forward pass for which room is kept, per GPU
OTHER_INSTANCES_PER_GPU: Final = 4
_PROBE_PERIOD_S: Final = 5

#: A folder per model and per version with copies of configurations and links to everything else, so that files can be
#: added beside a model's code. Plain POSIX shell: the image is the server's own, so that a repository that is part of
#: it can be seen.
OVERLAY_SCRIPT: Final = """\
set -eu
for model in "$1"/*/; do
  [ -d "$model" ] || { echo "$1: no model folders here" >&2; exit 1; }
  model=${model%/}
  target=/overlay/${model##*/}
  mkdir -p "$target"
  for entry in "$model"/*; do
    [ -e "$entry" ] || continue
    name=${entry##*/}
    case $name in
      *.pbtxt) cp -f "$entry" "$target/" && chmod u+w "$target/$name" ;;
      *[!0-9]*) ln -sfn "$entry" "$target/$name" ;;
      *)
        mkdir -p "$target/$name"
        for file in "$entry"/* "$entry"/.[!.]*; do
          [ ! -e "$file" ] || ln -sfn "$file" "$target/$name/${file##*/}"
        done ;;
    esac
  done
done
"""


def pod_template(context: ServerContext, kept: Kept) -> dict[str, Any]:
    """The pod template with the spec's `template` merged over it; labels that select stay ours."""
    rendered = {
        "metadata": pod_metadata(context.labels),
        "spec": _pod_spec(context, kept),
    }
    return strategic_merge(rendered, context.server.template or {})


def pod_metadata(labels: Mapping[str, str]) -> dict[str, Any]:
    """Labels, and where Prometheus finds the pod's metrics."""
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(names.METRICS_PORT),
        "prometheus.io/path": "/metrics",
    }
    return {"labels": dict(labels), "annotations": annotations}


def shared_memory_mib(server: Server) -> int:
    """Shared memory for the largest settings that levers may reach: 64 MiB per Python instance and device.

    Preprocessing and postprocessing have processes up to preprocessing's limit, or as many as wait for a pool; the
    forward pass has four instances per GPU, postprocessing at least as many. Stages that nobody named count as one of
    each kind per client-facing model. It is a limit: what nobody uses takes no memory.
    """
    forward = OTHER_INSTANCES_PER_GPU * max(1, server.accelerator.gpus)
    counts: dict[str, int] = {}
    for model in server.models:
        named = model.stages or Stages()
        # an instance of a stage that was moved to a pool waits in a process of its own
        most = max(model.limits.preprocess_instances.max, MOST_WAITING)
        for members, count in (
            (named.preprocess or [f"{model.name}/preprocess"], most),
            (named.forward or [f"{model.name}/forward"], forward),
            (named.postprocess or [f"{model.name}/postprocess"], max(most, forward)),
        ):
            counts |= {member: max(counts.get(member, 0), count) for member in members}
    return SHM_PER_INSTANCE_MIB * sum(counts.values())


def _pod_spec(context: ServerContext, kept: Kept) -> dict[str, Any]:
    server = context.server
    tuned = tuned_container(kept.overlay_image, server.accelerator.gpus, movable=True)
    return pod_spec(
        context.pool.node_selector,
        kept.grace_s,
        [overlay_container(server), tuned],
        _server_container(context, kept),
        volumes(server, context.names.tuned, shared_memory_mib(server)),
    )


def pod_spec(
    node_selector: Mapping[str, str],
    grace_s: int,
    init_containers: list[dict[str, Any]],
    container: dict[str, Any],
    volumes: list[dict[str, Any]],
) -> dict[str, Any]:
    """A pod without rights of its own, on these nodes."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": dict(node_selector),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS,
            "runAsGroup": RUN_AS,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": grace_s,
        "initContainers": init_containers,
        "containers": [container],
        "volumes": volumes,
    }


def _server_container(context: ServerContext, kept: Kept) -> dict[str, Any]:
    container = triton_container(
        context.server,
        context.server.image,
        context.names.secret,
        server_arguments(kept, context.trace_url),
        kept.start_s,
    )
    # Known to every server, so that declaring a pool, or none any more, restarts no pod.
    pool = child_names(context.resource, names.pool_of(context.server.name))
    host = f"{pool.service}.{context.namespace}.svc"
    container["env"].append({"name": names.POOL_ENV, "value": f"{host}:{names.HTTP_PORT}"})
    if context.server.accelerator.gpus:
        container["resources"] = {"limits": {names.GPU_RESOURCE: str(context.server.accelerator.gpus)}}
    return container


def triton_container(
    server: Server, image: str | None, secret: str, arguments: Sequence[str], start_s: int
) -> dict[str, Any]:
    """Tritonserver with these arguments; a pod may take `start_s` seconds to come up."""
    return {
        "name": names.CONTAINER,
        "image": image,
        "command": ["tritonserver"],
        "args": list(arguments),
        "env": [
            {"name": "ADMIN_KEY", "valueFrom": {"secretKeyRef": {"name": secret, "key": names.ADMIN_KEY}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            # the root file system is read-only: caches of libraries go to a scratch volume
            {"name": "HOME", "value": "/tmp"},  # noqa: S108
        ],
        "ports": [
            {"name": "http", "containerPort": names.HTTP_PORT},
            {"name": "grpc", "containerPort": names.GRPC_PORT},
            {"name": "metrics", "containerPort": names.METRICS_PORT},
        ],
        # the server answers nothing before its models are loaded
        "startupProbe": _probe("live", math.ceil(start_s / _PROBE_PERIOD_S)),
        # a load of a changed model must not count as a dead server
        "livenessProbe": _probe("live", 6),
        "readinessProbe": _probe("ready", 2),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        "securityContext": _restricted(),
        "volumeMounts": [
            {"name": "overlay", "mountPath": OVERLAY_PATH},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *_repository_mount(server),
        ],
    }


def overlay_container(server: Server, image: str | None = None) -> dict[str, Any]:
    """Lays the repository over, in the image that may hold it."""
    return {
        "name": "overlay",
        "image": image or server.image,
        "command": ["sh", "-c", OVERLAY_SCRIPT, "overlay", _repository_folder(server)],
        "securityContext": _restricted(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [{"name": "overlay", "mountPath": OVERLAY_PATH}, *_repository_mount(server)],
    }


def tuned_container(image: str, gpus: int, *, movable: bool = False) -> dict[str, Any]:
    """Merges tuned settings over it; `movable` makes it ready for stages that move to a pool."""
    arguments = [
        f"--settings={TUNED_PATH}/{names.SETTINGS_KEY}",
        f"--overlay={OVERLAY_PATH}",
        f"--gpus={gpus}",
        *(["--movable"] if movable else []),
    ]
    return {
        "name": "tuned",
        "image": image,
        "command": ["python", "-m", "slo_operator.overlay", *arguments],
        "securityContext": _restricted(),
        "resources": {"requests": {"cpu": "10m", "memory": "128Mi"}},
        "volumeMounts": [
            {"name": "overlay", "mountPath": OVERLAY_PATH},
            {"name": "tuned", "mountPath": TUNED_PATH, "readOnly": True},
        ],
    }


def _repository_folder(server: Server) -> str:
    repository = server.repository
    if repository is None:
        raise ValueError(
            f"server {server.name}: repository is missing; only servers with an image are rendered"
        )
    path = repository.path.rstrip("/") or "/"
    return path if repository.volume is None else f"{REPOSITORY_PATH}/{path.strip('/')}".rstrip("/")


def _repository_mount(server: Server) -> list[dict[str, Any]]:
    if server.repository is None or server.repository.volume is None:
        return []
    return [{"name": "repository", "mountPath": REPOSITORY_PATH, "readOnly": True}]


def volumes(server: Server, tuned: str, shm_mib: int) -> list[dict[str, Any]]:
    """The pod's volumes; `tuned` is the ConfigMap of its settings."""
    found: list[dict[str, Any]] = [
        {"name": "overlay", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_mib}Mi"}},
        {"name": "tmp", "emptyDir": {}},
        # pods come up also before the first setting was tuned
        {"name": "tuned", "configMap": {"name": tuned, "optional": True}},
    ]
    repository = server.repository
    if repository is not None and repository.volume is not None:
        found.append({"name": "repository"} | repository.volume.source())
    return found


def _probe(question: str, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/v2/health/{question}", "port": "http"},
        "periodSeconds": _PROBE_PERIOD_S,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _restricted() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
