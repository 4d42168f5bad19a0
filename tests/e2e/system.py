"""The operator and Prometheus in the cluster, and ways to hurt them."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.cluster import Cluster
from slo_operator.api.names import SYSTEM_NAMESPACE
from tests.e2e.waiting import until
from tests.e2e.web import ask

OPERATOR = "inferenceslo-operator"


@dataclass(frozen=True)
class Workload:
    """A Deployment of one pod."""

    cluster: Cluster
    namespace: str
    name: str

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def pods(self) -> list[dict[str, Any]]:
        """Its pods, whatever their state."""
        selector = f"app.kubernetes.io/name={self.name}"
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))[
            "items"
        ]
        return found

    def ready_pod(self) -> dict[str, Any] | None:
        """The pod that is ready, None while there is none."""
        for pod in self.pods():
            states = pod["status"].get("containerStatuses", [])
            if "deletionTimestamp" not in pod["metadata"] and states and all(s["ready"] for s in states):
                return pod
        return None

    def stop(self) -> None:
        """Scale to 0; returns when the pod is gone."""
        self.kubectl("scale", f"deployment/{self.name}", "--replicas=0")
        until(f"{self.name} gone", lambda: not self.pods(), 120)

    def start(self) -> None:
        """Scale to 1; returns when the pod is ready."""
        self.kubectl("scale", f"deployment/{self.name}", "--replicas=1")
        until(f"{self.name} ready", self.ready_pod, 120)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Without it inside the with block, and ready again after it."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def prometheus(cluster: Cluster) -> Workload:
    """Its storage is the pod's: a start is a start with nothing."""
    return Workload(cluster, "monitoring", "prometheus")


class Operator(Workload):
    """The operator, seen through its own metrics."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, SYSTEM_NAMESPACE, OPERATOR)

    def metric(self, series: str) -> float:
        """One of its own series, written as the page has it; 0 when it is not there."""
        pod = until("the operator ready", self.ready_pod)
        _, page = ask(f"http://{pod['status']['podIP']}:8080/metrics")
        found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def after_ticks(self, count: int, seconds: float = 120.0) -> None:
        """Wait until it has gone round so many times from now on: one more than asked, as one may be under way."""
        goal = self.metric("inferenceslo_tick_seconds_count") + count + 1
        until(f"{count} ticks", lambda: self.metric("inferenceslo_tick_seconds_count") >= goal, seconds)

    def kill(self) -> None:
        """SIGKILL to its process, as a kernel short of memory would do; returns when its successor is ready."""
        pod = until("the operator ready", self.ready_pod)
        uid, before = pod["metadata"]["uid"], _restarts(pod)
        victims = [pid for pid in processes_of(uid) if b"slo_operator" in _command(pid)]
        assert victims, f"no process of pod {pod['metadata']['name']} on this machine"
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

        def succeeded() -> bool:
            found = self.ready_pod()
            return found is not None and (found["metadata"]["uid"] != uid or _restarts(found) > before)

        until("the killed operator's successor ready", succeeded, 180)


def _restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def processes_of(pod_uid: str) -> list[int]:
    """Processes whose control group names the pod, whichever way it is spelled."""
    names = (pod_uid, pod_uid.replace("-", "_"))
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "cgroup").read_text()
            if any(name in text for name in names):
                found.append(int(folder.name))
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
