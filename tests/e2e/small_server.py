"""Manifests of a small server: the emulation's small profile, one model, quick canaries on means.

At 94 ms of preprocessing and 120 ms of forward pass, one preprocessing process per pod is starved at 9 requests/s.
"""

import json
from collections.abc import Mapping
from typing import Any

from demo import setup
from slo_operator.api.names import API_VERSION, KIND

RESOURCE, SERVER = setup.RESOURCE, setup.SERVER
DEPLOYMENT = f"{RESOURCE}-{SERVER}"
HEADLESS = f"{DEPLOYMENT}-headless"
IMAGE = "inferenceslo/triton-cpu:dev"
MODEL = "assistant-small"
PREPROCESSING, FORWARD, POSTPROCESSING = "preprocessing", "forward-small", "postprocessing"
MEMBERS = (PREPROCESSING, FORWARD, POSTPROCESSING)
POOL = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}

Manifest = dict[str, Any]


def inference_slo(
    namespace: str,
    *,
    mode: str = "Observe",
    replicas: tuple[int, int] = (2, 2),
    gpus: int = 1,
    latency: Mapping[str, str],
    processes: int = 8,
    queue_delay: str = "10ms",
    faults: Mapping[str, object] | None = None,
    target: bool = False,
    cores: int = 8,
    pool: Manifest | None = None,
) -> Manifest:
    """The resource. `latency`: quantile or "mean" → target; `processes`, `queue_delay`: how far levers may go;
    `faults`: the emulation's; `target`: adopt the Deployment of that name instead of rendering one; `cores` of a pod;
    `pool`: its preprocessPool.
    """
    server: Manifest = {
        "name": SERVER,
        "pool": "a100",
        "accelerator": {"gpus": gpus},
        "replicas": {"min": replicas[0], "max": replicas[1]},
        "models": [
            {
                "name": MODEL,
                "slo": {"latency": dict(latency), "window": "1m"},
                "limits": {
                    "batchSize": {"max": 16},
                    "queueDelay": {"max": queue_delay},
                    "preprocessInstances": {"max": processes},
                },
            }
        ],
    }
    if target:
        server["target"] = {"deployment": DEPLOYMENT}
    else:
        server |= {"image": IMAGE, "repository": {"path": "/models"}}
        server["template"] = {"spec": {"containers": [container(faults, cores)]}}
        if pool is not None:
            server["preprocessPool"] = pool
    spec = {
        "mode": mode,
        "pools": [{"name": "a100", "nodeSelector": POOL, "maxGPUs": 4}],
        "servers": [server],
        "rollout": {"minSamples": 30, "analysis": "20s", "reloadsPerHour": 60},
    }
    meta = {"name": RESOURCE, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def container(faults: Mapping[str, object] | None = None, cores: int = 8) -> Manifest:
    """What the small profile needs of the container."""
    limit = {"name": "EMULATED_CPU_CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    environment: list[Manifest] = [limit, {"name": "EMULATION_PROFILE", "value": "small"}]
    if faults:
        environment.append({"name": "EMULATION_FAULTS", "value": json.dumps(faults)})
    return {
        "name": "triton",
        "imagePullPolicy": "IfNotPresent",
        "env": environment,
        "resources": {"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"cpu": str(cores)}},
    }


def open_deployment(namespace: str) -> list[Manifest]:
    """Somebody else's Triton of one pod, with model control open to everybody, and a headless Service before it."""
    labels = {"app": "triton"}
    arguments = ["--model-repository=/models", "--model-control-mode=explicit", "--load-model=*"]
    server = container() | {
        "image": IMAGE,
        "command": ["tritonserver"],
        "args": arguments,
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": 8000}, "periodSeconds": 5},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "metadata": {
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8002"},
        },
        "spec": {
            "securityContext": {"runAsUser": 1000},
            "containers": [server],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
    }
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    service = {"clusterIP": "None", "selector": labels, "ports": [{"name": "http", "port": 8000}]}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": namespace, "labels": labels},
            "spec": deployment,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": HEADLESS, "namespace": namespace},
            "spec": service,
        },
    ]


def gateway(namespace: str) -> str:
    """The demo's gateway for this namespace, without the histogram: what is known here are the server's means."""
    text = setup.GATEWAY.read_text("utf-8").replace(setup.NAMESPACE, namespace)
    return setup.gateway_manifest(text, histogram=False)
