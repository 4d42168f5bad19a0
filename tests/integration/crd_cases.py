"""The rules of the CRD: for each, values that pass, values that fail, and the words of the refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.integration.resources import ABSENT, SPEC

SERVER: Final = "servers.0"
MODEL: Final = f"{SERVER}.models.0"
LATENCY: Final = f"{MODEL}.slo.latency"
LIMITS: Final = f"{MODEL}.limits"
TEMPLATE: Final = f"{SERVER}.template"
CONTAINER: Final = f"{TEMPLATE}.spec.containers.0"


@dataclass(frozen=True)
class Case:
    """`good` and `bad` map dotted paths below spec to values; `message` must be in the API server's refusal.

    `field` is the path that the refusal names, by default the first one of `bad`. `own_words`: the models refuse
    it as well, in other words.
    """

    name: str
    good: dict[str, Any]
    bad: dict[str, Any]
    message: str
    field: str | None = None
    own_words: bool = False

    @property
    def named_field(self) -> str:
        """servers.0.name is named spec.servers[0].name."""
        out = "spec"
        for part in (next(iter(self.bad)) if self.field is None else self.field).split("."):
            out += f"[{part}]" if part.isdigit() else f".{part}" if part else ""
        return out


_DURATION = "a duration with a unit, such as 300ms"
_AT_LEAST_1 = "greater than or equal to 1"
_SECOND = {**SPEC["servers"][0], "name": "second"}
_POOLS_NAME = {**_SECOND, "name": f"{SPEC['servers'][0]['name']}-pool"}
_OTHER_MODEL = {"name": "n", "slo": {"latency": {"p99": "1s"}}}
_TARGET = {
    f"{SERVER}.image": ABSENT,
    f"{SERVER}.repository": ABSENT,
    f"{SERVER}.target": {"deployment": "t"},
}
_CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
_NFS = {"nfs": {"server": "s", "path": "/p"}}
_ONE_SOURCE = "either image (with repository) or target, and not both"
_MINIMUMS = "the servers' minimums must fit into the pool"

OBJECTIVES = [
    Case("durations have a unit", {f"{LATENCY}.p99": "1m30s"}, {f"{LATENCY}.p99": "300"}, _DURATION),
    Case("units are Go's", {f"{LATENCY}.p99": "250000us"}, {f"{LATENCY}.p99": "1d"}, _DURATION),
    Case(
        "durations are text",
        {f"{LATENCY}.p99": "0.3s"},
        {f"{LATENCY}.p99": 300},
        "must be of type string",
        own_words=True,
    ),
    Case(
        "targets are above zero",
        {f"{LATENCY}.p99": "1us"},
        {f"{LATENCY}.p99": "0ms"},
        "a duration above zero",
    ),
    Case(
        "quantiles are in order",
        {f"{LATENCY}.p50": "300ms", f"{LATENCY}.p90": "0.3s"},
        {f"{LATENCY}.p50": "301ms"},
        "higher quantiles must not be below lower ones",
        LATENCY,
    ),
    Case(
        "neighbouring quantiles are in order",
        {f"{LATENCY}.p90": "100ms", f"{LATENCY}.p95": "200ms"},
        {f"{LATENCY}.p90": "200ms", f"{LATENCY}.p95": "100ms"},
        "p50 ≤ p90 ≤ p95 ≤ p99",
        LATENCY,
    ),
    Case(
        "a target at least",
        {LATENCY: {"mean": "40ms"}},
        {LATENCY: {}},
        "at least one of p50, p90, p95, p99, mean",
    ),
    Case(
        "windows are long enough",
        {f"{MODEL}.slo.window": "10s"},
        {f"{MODEL}.slo.window": "9s"},
        "at least 10s",
    ),
    Case(
        "availability is a percentage",
        {f"{MODEL}.slo.availability": "99.95%"},
        {f"{MODEL}.slo.availability": "100.1%"},
        "a percentage from 0% to 100%, such as 99.9%",
    ),
    Case(
        "throughput is above zero",
        {f"{MODEL}.slo.throughput": 0.5},
        {f"{MODEL}.slo.throughput": 0},
        "greater than 0",
    ),
    Case(
        "batch sizes are in order",
        {f"{LIMITS}.batchSize": {"min": 8, "max": 8}},
        {f"{LIMITS}.batchSize": {"min": 9, "max": 8}},
        "batchSize.min must not be above batchSize.max",
    ),
    Case(
        "a delay may be zero but has a unit",
        {f"{LIMITS}.queueDelay.max": "0s"},
        {f"{LIMITS}.queueDelay.max": "10"},
        _DURATION,
    ),
    Case(
        "preprocessing has instances",
        {f"{LIMITS}.preprocessInstances.max": 1},
        {f"{LIMITS}.preprocessInstances.max": 0},
        _AT_LEAST_1,
    ),
    Case(
        "a member has one role",
        {f"{MODEL}.stages": {"preprocess": ["a"], "forward": ["b"], "postprocess": ["c"]}},
        {f"{MODEL}.stages": {"preprocess": ["a"], "forward": ["b"], "postprocess": ["a"]}},
        "a model has one role",
    ),
    Case(
        "model names are folders",
        {f"{MODEL}.name": "Llama_3.1-8B"},
        {f"{MODEL}.name": "../etc"},
        "the name of a folder of the repository",
        own_words=True,
    ),
    Case(
        "served models are unique",
        {f"{SERVER}.models.1": _OTHER_MODEL},
        {f"{SERVER}.models.1": {**_OTHER_MODEL, "name": "m"}},
        "Duplicate value",
        own_words=True,
    ),
]

SERVERS = [
    Case(
        "replicas are in order",
        {f"{SERVER}.replicas": {"min": 2, "max": 2}},
        {f"{SERVER}.replicas": {"min": 2, "max": 1}},
        "replicas.min must not be above replicas.max",
    ),
    Case("replicas are numbers", {f"{SERVER}.replicas.min": 1}, {f"{SERVER}.replicas.min": "1"}, "integer"),
    Case(
        "not image and target",
        {**_TARGET, f"{TEMPLATE}": ABSENT},
        {f"{SERVER}.target": {"deployment": "t"}},
        _ONE_SOURCE,
        SERVER,
    ),
    Case(
        "image or target",
        {},
        {f"{SERVER}.image": ABSENT, f"{SERVER}.repository": ABSENT},
        _ONE_SOURCE,
        SERVER,
    ),
    Case(
        "an image has a repository",
        {},
        {f"{SERVER}.repository": ABSENT},
        "image and repository belong together",
        SERVER,
    ),
    Case(
        "a target has no template",
        {**_TARGET, f"{TEMPLATE}": ABSENT},
        _TARGET,
        "template belongs to image",
        TEMPLATE,
    ),
    Case(
        "a target has no pool",
        {f"{SERVER}.preprocessPool": {"maxReplicas": 4}},
        {**_TARGET, TEMPLATE: ABSENT, f"{SERVER}.preprocessPool": {"maxReplicas": 4}},
        "preprocessPool belongs to image",
        f"{SERVER}.preprocessPool",
    ),
    Case(
        "no other server has the pool's name",
        {f"{SERVER}.preprocessPool": {"maxReplicas": 4}, "servers.1": _SECOND},
        {f"{SERVER}.preprocessPool": {"maxReplicas": 4}, "servers.1": _POOLS_NAME},
        "no other server may have it",
        "servers",
    ),
    Case(
        "a pool has replicas",
        {f"{SERVER}.preprocessPool": {"maxReplicas": 1}},
        {f"{SERVER}.preprocessPool.maxReplicas": 0},
        _AT_LEAST_1,
    ),
    Case(
        "a pool's memory is an amount",
        {f"{SERVER}.preprocessPool": {"maxReplicas": 1, "resources": {"limits": {"memory": "512Mi"}}}},
        {f"{SERVER}.preprocessPool": {"maxReplicas": 1, "resources": {"limits": {"memory": "4 gigabytes"}}}},
        "an amount of memory in Mi or Gi, such as 4Gi",
        f"{SERVER}.preprocessPool.resources.limits.memory",
        own_words=True,
    ),
    Case(
        "a pool's CPU is an amount",
        {f"{SERVER}.preprocessPool": {"maxReplicas": 1, "resources": {"requests": {"cpu": "500m"}}}},
        {f"{SERVER}.preprocessPool": {"maxReplicas": 1, "resources": {"limits": {"cpu": "half"}}}},
        "a number of cores, such as 4",
        f"{SERVER}.preprocessPool.resources.limits.cpu",
        own_words=True,
    ),
    Case(
        "a repository in an image is absolute",
        {f"{SERVER}.repository.path": "/opt/models"},
        {f"{SERVER}.repository.path": "models"},
        "an absolute path within the image, such as /models",
    ),
    Case(
        "a repository stays within its volume",
        {f"{SERVER}.repository": {"volume": _CLAIM, "path": "a/b"}},
        {f"{SERVER}.repository": {"volume": _CLAIM, "path": "../b"}},
        "a path without '..'",
    ),
    Case(
        "a volume is of one kind",
        {f"{SERVER}.repository.volume": _NFS},
        {f"{SERVER}.repository.volume": _NFS | _CLAIM},
        "exactly one of persistentVolumeClaim, nfs, csi, hostPath",
    ),
    Case(
        "server names are unique",
        {"servers.1": {**_SECOND, "pool": "h100"}},
        {"servers.1": {**_SECOND, "name": "chat"}},
        "Duplicate value",
        own_words=True,
    ),
    Case(
        "server names are labels",
        {f"{SERVER}.name": "chat-2"},
        {f"{SERVER}.name": "2-Chat"},
        "lower-case letters",
        own_words=True,
    ),
    Case("workloads", {f"{SERVER}.workload": "Batch"}, {f"{SERVER}.workload": "Both"}, "Online"),
    Case("engines", {f"{SERVER}.engine": "TensorRTLLM"}, {f"{SERVER}.engine": "vLLM"}, "Generic"),
]

POOLS_AND_ROLLOUT = [
    Case(
        "the pool exists",
        {f"{SERVER}.pool": "h100"},
        {f"{SERVER}.pool": "v100"},
        "every server's pool must be a name of spec.pools",
        "servers",
        own_words=True,
    ),
    Case(
        "minimums fit into the pool",
        {f"{SERVER}.replicas": {"min": 2, "max": 4}},
        {f"{SERVER}.replicas": {"min": 3, "max": 4}},
        _MINIMUMS,
        "pools",
    ),
    Case(
        "minimums of all servers fit together",
        {"servers.1": {**_SECOND, "pool": "h100"}, f"{SERVER}.replicas.min": 2},
        {"servers.1": _SECOND, f"{SERVER}.replicas.min": 2},
        _MINIMUMS,
        "pools",
    ),
    Case("pool names are unique", {}, {"pools.1.name": "a100"}, "Duplicate value", "pools.1", own_words=True),
    Case(
        "a pool has a selector",
        {"pools.0.nodeSelector": {"a": "b", "c": "d"}},
        {"pools.0.nodeSelector": {}},
        "at least 1",
    ),
    Case("a pool has GPUs", {"pools.0.maxGPUs": 2}, {"pools.0.maxGPUs": 0}, _AT_LEAST_1),
    Case(
        "MIG policies", {"pools.0.mig.policy": "LastResort"}, {"pools.0.mig.policy": "Always"}, "LastResort"
    ),
    Case("modes", {"mode": "Auto"}, {"mode": "auto"}, "Recommend"),
    Case("priorities are whole", {"priority": -5}, {"priority": 0.5}, "integer"),
    Case(
        "an analysis takes its time", {"rollout.analysis": "10s"}, {"rollout.analysis": "5s"}, "at least 10s"
    ),
    Case(
        "tolerances are percentages",
        {"rollout.maxExtraMisses": "0.5%"},
        {"rollout.maxExtraMisses": "0.01"},
        "a percentage from 0% to 100%",
    ),
    Case("an analysis has samples", {"rollout.minSamples": 10}, {"rollout.minSamples": 9}, "or equal to 10"),
    Case("reloads have a budget", {"rollout.reloadsPerHour": 1}, {"rollout.reloadsPerHour": 0}, _AT_LEAST_1),
]

OWNED = [
    Case(
        "the grace period is ours",
        {f"{TEMPLATE}.spec.priorityClassName": "p"},
        {f"{TEMPLATE}.spec.terminationGracePeriodSeconds": 5},
        "terminationGracePeriodSeconds is the operator's",
        f"{TEMPLATE}.spec",
    ),
    Case(
        "the restart policy is ours",
        {},
        {f"{TEMPLATE}.spec.restartPolicy": "Never"},
        "restartPolicy is the operator's",
        f"{TEMPLATE}.spec",
    ),
    Case(
        "the image is the server's",
        {f"{CONTAINER}.imagePullPolicy": "Always"},
        {f"{CONTAINER}.image": "x"},
        "image is the operator's: set image of the server",
        CONTAINER,
    ),
    Case(
        "the command is ours",
        {f"{CONTAINER}.args": ["--log-verbose=1"]},
        {f"{CONTAINER}.command": ["sh"]},
        "command is the operator's",
        CONTAINER,
    ),
    *(
        Case(
            f"{hook} is ours",
            {f"{TEMPLATE}.spec.containers.1": {"name": "sidecar", "image": "x", hook: {}}},
            {f"{CONTAINER}.{hook}": {}},
            f"{hook} is the operator's",
            CONTAINER,
        )
        for hook in ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle")
    ),
    Case(
        "init containers of ours",
        {f"{TEMPLATE}.spec.initContainers": [{"name": "fetch", "image": "x"}]},
        {f"{TEMPLATE}.spec.initContainers": [{"name": "overlay", "image": "x"}]},
        "the operator's: choose another",
    ),
]

CASES = [*OBJECTIVES, *SERVERS, *POOLS_AND_ROLLOUT, *OWNED]

#: refused when the operator reads the resource: the rule language cannot look into free-form objects
LATER: list[tuple[dict[str, Any], str]] = [
    ({f"{CONTAINER}.args": ["--model-repository=/x"]}, "args[0]: --model-repository is the operator's"),
    ({f"{CONTAINER}.env": [{"name": "ADMIN_KEY", "value": "x"}]}, "env[0]: ADMIN_KEY is the operator's"),
    (
        {f"{CONTAINER}.resources": {"limits": {"nvidia.com/gpu": 1}}},
        "resources.limits[nvidia.com/gpu] is the operator's: set accelerator.gpus",
    ),
    (
        {f"{TEMPLATE}.spec.volumes": [{"name": "shm", "emptyDir": {}}]},
        "spec.volumes[0]: the name shm is the operator's",
    ),
    (
        {f"{TEMPLATE}.metadata.labels": {"inferenceslo.dev/server": "x"}},
        "metadata.labels[inferenceslo.dev/server] is the operator's",
    ),
    (
        {f"{TEMPLATE}.spec.nodeSelector": {"gpu": "t4"}},
        "template.spec.nodeSelector[gpu] is the pool's: it may only be narrowed",
    ),
]
