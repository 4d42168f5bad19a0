"""The pod of a server: two init containers that lay the tuned settings over the repository, and tritonserver."""

from __future__ import annotations

import math
from typing import Any, Final

from slo_operator.api import names
from slo_operator.api.spec import Server
from slo_operator.render.arguments import OVERLAY_PATH, server_arguments
from slo_operator.render.context import ServerContext
from slo_operator.render.kept import PRE_STOP_S, Kept
from slo_operator.render.merge import strategic_merge

REPOSITORY_PATH: Final = "/repository"
TUNED_PATH: Final = "/tuned"

#: NVIDIA's images have this user; any other that is not root works as well
RUN_AS: Final = 1000

#: shared memory that one Python instance takes on one device
SHM_PER_INSTANCE_MIB: Final = 64
#: instances of every other stage for which room is kept, per GPU
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
        "metadata": {
            "labels": context.labels,
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(names.METRICS_PORT),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": _pod_spec(context, kept),
    }
    return strategic_merge(rendered, context.server.template or {})


def shared_memory_mib(server: Server) -> int:
    """Shared memory for the largest settings that levers may reach: 64 MiB per Python instance and device.

    Preprocessing runs on the CPU, up to its limit; of other stages four instances per GPU are counted.
    Stages that nobody named count as one of each kind per client-facing model.
    """
    preprocess: dict[str, int] = {}
    others: set[str] = set()
    for model in server.models:
        named = model.stages
        stages = named.preprocess if named and named.preprocess else [f"{model.name}/preprocess"]
        for member in stages:
            preprocess[member] = max(preprocess.get(member, 0), model.limits.preprocess_instances.max)
        others.update(named.forward if named and named.forward else [f"{model.name}/forward"])
        others.update(named.postprocess if named and named.postprocess else [f"{model.name}/postprocess"])
    instances = sum(preprocess.values()) + len(others) * OTHER_INSTANCES_PER_GPU * max(
        1, server.accelerator.gpus
    )
    return SHM_PER_INSTANCE_MIB * instances


def _pod_spec(context: ServerContext, kept: Kept) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": dict(context.pool.node_selector),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS,
            "runAsGroup": RUN_AS,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": kept.grace_s,
        "initContainers": [_overlay_container(context.server), _tuned_container(context, kept)],
        "containers": [_server_container(context, kept)],
        "volumes": _volumes(context),
    }


def _server_container(context: ServerContext, kept: Kept) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": names.CONTAINER,
        "image": context.server.image,
        "command": ["tritonserver"],
        "args": server_arguments(kept, context.trace_url),
        "env": [
            {
                "name": "ADMIN_KEY",
                "valueFrom": {"secretKeyRef": {"name": context.names.secret, "key": names.ADMIN_KEY}},
            },
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
        "startupProbe": _probe("live", math.ceil(kept.start_s / _PROBE_PERIOD_S)),
        # a load of a changed model must not count as a dead server
        "livenessProbe": _probe("live", 6),
        "readinessProbe": _probe("ready", 2),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        "securityContext": _restricted(),
        "volumeMounts": [
            {"name": "overlay", "mountPath": OVERLAY_PATH},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *_repository_mount(context.server),
        ],
    }
    if context.server.accelerator.gpus:
        container["resources"] = {"limits": {names.GPU_RESOURCE: str(context.server.accelerator.gpus)}}
    return container


def _overlay_container(server: Server) -> dict[str, Any]:
    return {
        "name": "overlay",
        "image": server.image,
        "command": ["sh", "-c", OVERLAY_SCRIPT, "overlay", _repository_folder(server)],
        "securityContext": _restricted(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": [{"name": "overlay", "mountPath": OVERLAY_PATH}, *_repository_mount(server)],
    }


def _tuned_container(context: ServerContext, kept: Kept) -> dict[str, Any]:
    arguments = [
        f"--settings={TUNED_PATH}/{names.SETTINGS_KEY}",
        f"--overlay={OVERLAY_PATH}",
        f"--gpus={context.server.accelerator.gpus}",
    ]
    return {
        "name": "tuned",
        "image": kept.overlay_image,
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


def _volumes(context: ServerContext) -> list[dict[str, Any]]:
    size = f"{shared_memory_mib(context.server)}Mi"
    volumes: list[dict[str, Any]] = [
        {"name": "overlay", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "tmp", "emptyDir": {}},
        # pods come up also before the first setting was tuned
        {"name": "tuned", "configMap": {"name": context.names.tuned, "optional": True}},
    ]
    repository = context.server.repository
    if repository is not None and repository.volume is not None:
        volumes.append({"name": "repository"} | repository.volume.source())
    return volumes


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
