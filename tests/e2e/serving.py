"""A small server in a namespace of its own, seen as its users see it: through kubectl, its pods and its gateway."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from devcluster.cluster import Cluster
from devcluster.shell import ClusterError
from slo_operator.api.names import ADMIN_KEY, LABEL_RESOURCE, MEMORY_KEY, PLURAL, SETTINGS_KEY
from slo_operator.api.resource import parse_status
from slo_operator.api.status import Condition, DecisionStatus, InferenceSLOStatus
from slo_operator.render.tuned import settings_from_json
from slo_tuner.codec import memory_from_json
from slo_tuner.memory import ServerMemory
from slo_tuner.settings import PodSettings
from tests.e2e.pods import Pod
from tests.e2e.small_server import DEPLOYMENT, MEMBERS, MODEL, RESOURCE, Manifest, gateway
from tests.e2e.waiting import until
from tests.e2e.web import ask

CHILDREN = "deployment,service,secret,configmap,poddisruptionbudget,networkpolicy"
#: label of everything that the operator makes for the resource
OURS = f"{LABEL_RESOURCE}={RESOURCE}"
#: what lives on in an object whose status moves by itself
_MOVING = ("resourceVersion", "managedFields")

Json = dict[str, Any]


@dataclass(frozen=True)
class Serving:
    """The InferenceSLO `assistant` with the server `chat`, in `namespace`; `selector` finds its pods."""

    cluster: Cluster
    namespace: str
    selector: str = OURS

    # -- there and away ------------------------------------------------------------------------------------------------

    def open(self, *manifests: Manifest) -> None:
        """Apply to a new namespace, with a gateway that does not send yet."""
        until(f"the former {self.namespace} gone", lambda: not self.is_there(), 150)
        self.cluster.kubectl("create", "namespace", self.namespace)
        until("a service account", lambda: self.exists("serviceaccount", "default"))
        self.apply(*manifests)
        self.kubectl("apply", "-f", "-", stdin=gateway(self.namespace))

    def await_ready(self, pods: int) -> None:
        """Until so many pods and the gateway are ready, and the gateway knows the pods."""
        until(f"{pods} pods ready in {self.namespace}", lambda: len(self.pods()) == pods, 240)
        self.kubectl("rollout", "status", "deployment/gateway", "--timeout=120s")
        until("the gateway to know the pods", lambda: len(self.load()["endpoints"]) == pods)

    def close(self) -> None:
        """Delete the namespace; fails when something in it does not end."""
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait", "--timeout=150s", timeout=180)

    def is_there(self) -> bool:
        """Whether the namespace exists, be it that it ends."""
        found = self.cluster.kubectl("get", "namespace", self.namespace, "--ignore-not-found", "-o", "name")
        return bool(found.strip())

    # -- kubectl -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, timeout=180)

    def apply(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def exists(self, kind: str, name: str) -> bool:
        try:
            self.kubectl("get", kind, name)
        except ClusterError:
            return False
        return True

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def patch(self, kind: str, name: str, patch: object) -> None:
        """A JSON merge patch, as `kubectl patch` sends it."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))

    def patch_spec(self, **spec: object) -> None:
        self.patch(PLURAL, RESOURCE, {"spec": spec})

    def events(self, reason: str) -> list[str]:
        """The notes of the resource's events of this reason."""
        selector = f"reason={reason},involvedObject.name={RESOURCE}"
        found = json.loads(self.kubectl("get", "events", f"--field-selector={selector}", "-o", "json"))
        return [event["message"] for event in found["items"]]

    # -- the resource --------------------------------------------------------------------------------------------------

    def status(self) -> InferenceSLOStatus:
        return parse_status(self.get(PLURAL, RESOURCE).get("status"))

    def condition(self, kind: str) -> Condition | None:
        return next((c for c in self.status().conditions if c.type == kind), None)

    def await_condition(self, kind: str, status: str, words: str = "", seconds: float = 90.0) -> Condition:
        """The condition, once it has this status and its message these words."""

        def look() -> Condition | None:
            found = self.condition(kind)
            return found if found and found.status.value == status and words in found.message else None

        return until(f"{kind} {status} {words!r} in {self.namespace}", look, seconds)

    def history(self) -> list[DecisionStatus]:
        """The decisions that acted, the first one first."""
        return list(reversed(self.status().history))

    def decisions(self, reason: str) -> list[DecisionStatus]:
        return [decision for decision in self.history() if decision.reason == reason]

    def await_phase(self, phase: str, seconds: float = 120.0) -> list[str]:
        """The pods of the change in flight, the canary first, once it is in this phase."""

        def look() -> list[str] | None:
            change = self.status().servers[0].change
            return change.pods if change is not None and change.phase == phase else None

        return until(f"a change in phase {phase} in {self.namespace}", look, seconds, pause=0.5)

    def await_decision(self, reason: str, more_than: int = 0, seconds: float = 180.0) -> DecisionStatus:
        """The latest decision of this reason, once there are more than so many."""
        found = until(
            f"more than {more_than} decisions {reason} in {self.namespace}",
            lambda: d if len(d := self.decisions(reason)) > more_than else None,
            seconds,
        )
        return found[-1]

    # -- its children --------------------------------------------------------------------------------------------------

    def children(self) -> dict[str, str]:
        """Kind/name → version of every child, of those with a moving status a digest of all but that."""
        items = json.loads(self.kubectl("get", CHILDREN, "-l", OURS, "-o", "json"))["items"]
        return {f"{item['kind']}/{item['metadata']['name']}": _version(item) for item in items}

    def version(self) -> str:
        """The resource's own version: it moves with every write, also of status."""
        return str(self.get(PLURAL, RESOURCE)["metadata"]["resourceVersion"])

    def tuned(self) -> PodSettings:
        """What pods come up with, where it is not what the repository says."""
        data = self.get("configmap", f"{DEPLOYMENT}-tuned")["data"]
        return settings_from_json(data[SETTINGS_KEY])

    def memory(self) -> ServerMemory:
        return memory_from_json(self.get("configmap", f"{DEPLOYMENT}-state")["data"][MEMORY_KEY])

    def replicas(self) -> int:
        return int(self.get("deployment", DEPLOYMENT)["spec"]["replicas"])

    # -- its pods ------------------------------------------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        """The pods that are ready and stay, by name."""
        key = self._key()
        items = json.loads(self.kubectl("get", "pods", "-l", self.selector, "-o", "json"))["items"]
        return sorted((_pod(item, key) for item in items if _serves(item)), key=lambda pod: pod.name)

    def _key(self) -> str:
        name = f"{DEPLOYMENT}-control"
        if not self.exists("secret", name):
            return ""
        return base64.b64decode(self.get("secret", name)["data"][ADMIN_KEY]).decode()

    def live(self) -> dict[str, dict[str, Json]]:
        """Pod → model → the whole configuration that it runs."""
        return {pod.name: {model: pod.config(model) for model in (MODEL, *MEMBERS)} for pod in self.pods()}

    def instances(self, model: str) -> dict[str, int]:
        """Pod → instances of the model there."""
        return {pod.name: pod.settings(model).instances for pod in self.pods()}

    def agree(self) -> bool:
        """Whether every pod runs what the tuned ConfigMap says, and all of them the same of the rest."""
        tuned, pods = self.tuned(), self.pods()
        runs = [{model: pod.settings(model) for model in MEMBERS} for pod in pods]
        return all(run == runs[0] | dict(tuned) for run in runs)

    def inject(self, faults: Json, pods: Sequence[str] = ()) -> None:
        """Faults of the emulation in these pods (without any, in every pod of the server), from the next execution or
        load on."""
        script = f"echo '{json.dumps(faults)}' > /dev/shm/emulation-faults.json"
        for name in pods or [pod.name for pod in self.pods()]:
            self.kubectl("exec", name, "-c", "triton", "--", "sh", "-c", script)

    # -- its clients ---------------------------------------------------------------------------------------------------

    def send(self, rate_rps: float, seed: int = 1) -> None:
        """Steady Poisson traffic for the model from now on, as many requests/s over all pods."""
        phase = {"rate": rate_rps, "seed": seed, "mix": {MODEL: 1}, "burst": {"factor": 1}}
        status, text = ask(f"{self._gateway()}/phase", phase)
        assert status == 200, text

    def load(self) -> Json:
        """The gateway's word on what it sends: total, failed, endpoints, …"""
        found: Json = json.loads(ask(f"{self._gateway()}/status")[1])
        return found

    def failures(self) -> list[str]:
        """What went wrong with requests so far, for people; empty when every one was answered."""
        following, found = 0, list[str]()
        while True:
            page = json.loads(ask(f"{self._gateway()}/records?since={following}")[1])
            rows = [dict(zip(page["fields"], row, strict=True)) for row in page["records"]]
            found += [f"{r['status']} from {r['pod']}: {r['error']}" for r in rows if r["status"] != 200]
            if not rows or page["next"] == following:
                return found
            following = page["next"]

    def assert_none_failed(self) -> None:
        """Requests went on until now, and not one failed."""
        before = self.load()["total"]
        until("further answers", lambda: self.load()["total"] > before, 30)
        failures = self.failures()
        assert not failures, f"{len(failures)} requests failed, such as {failures[:5]}"

    def _gateway(self) -> str:
        def look() -> str | None:
            selector = "app.kubernetes.io/name=gateway"
            items = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
            return next((item["status"]["podIP"] for item in items if _serves(item)), None)

        return f"http://{until('the gateway', look)}:8080"


def leave(servings: Iterable[Serving]) -> None:
    """Delete their namespaces, and let them end while something else begins."""
    for serving in servings:
        serving.cluster.kubectl(
            "delete", "namespace", serving.namespace, "--wait=false", "--ignore-not-found"
        )


def _serves(pod: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _pod(item: Json, key: str) -> Pod:
    return Pod(item["metadata"]["name"], item["metadata"]["uid"], item["status"]["podIP"], key)


def _version(item: Json) -> str:
    if "status" not in item:
        return str(item["metadata"]["resourceVersion"])
    meta = {name: value for name, value in item["metadata"].items() if name not in _MOVING}
    text = json.dumps([meta, item["spec"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
