"""The emulated GPUs as a tenant, the scheduler, the kubelet and Prometheus see them, on a real cluster."""

import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from devcluster import emulation, monitoring
from devcluster.cluster import Cluster
from devcluster.golang import Program, build
from devcluster.layout import PACKAGE, REPOSITORY
from devcluster.processes import Supervisor
from devcluster.scratch_image import write_scratch_image
from devcluster.shell import ClusterError
from tests.e2e.waiting import eventually
from tests.e2e.web import fetch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NODE = "a100-node-0"
NAMESPACE = "gpu-emulation"
IMAGE = "docker.io/inferenceslo/testpod:dev"
IDENTITY = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator["Tenant"]:
    """A namespace to run pods in, on a cluster that has their image."""
    program = Program("testpod", PACKAGE, "./cmd/testpod")
    archive = program.binary().with_suffix(".tar")
    if not archive.exists():
        write_scratch_image(archive, IMAGE, {"/testpod": build(program, print)}, ["/testpod"])
    cluster.load_image(archive)
    cluster.kubectl("create", "namespace", NAMESPACE)
    # A pod is refused while its namespace has no service account yet.
    eventually(
        "service account", lambda: succeeds(cluster, "-n", NAMESPACE, "get", "serviceaccount", "default")
    )
    yield Tenant(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait", timeout=180)


@pytest.fixture(autouse=True)
def _no_pods_left(tenant: "Tenant") -> Iterator[None]:
    yield
    tenant.cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=1", timeout=120)


def test_a_pod_that_asks_for_two_gpus_gets_two_of_its_own(tenant: "Tenant") -> None:
    tenant.start("first", gpus=2)
    tenant.start("second", gpus=2)
    first, second = tenant.visible_gpus("first"), tenant.visible_gpus("second")
    assert len(first) == len(second) == 2
    assert len({*first, *second}) == 4, "no GPU is handed out twice"
    assert all(IDENTITY.fullmatch(identity) for identity in first + second)


def test_the_node_offers_four_gpus_and_a_fifth_waits_until_one_is_free(tenant: "Tenant") -> None:
    assert tenant.allocatable() == str(emulation.NODE.count) == "4"
    tenant.start("four", gpus=4)
    tenant.create("fifth", gpus=1)
    condition = eventually("a verdict of the scheduler", lambda: tenant.condition("fifth", "PodScheduled"))
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]

    tenant.cluster.kubectl("-n", NAMESPACE, "delete", "pod", "four", "--grace-period=1")
    tenant.await_running("fifth")
    assert len(tenant.visible_gpus("fifth")) == 1


def test_a_held_gpu_reports_what_its_pod_claims_and_a_free_one_is_idle(tenant: "Tenant") -> None:
    tenant.start("busy", "--busy=0.3", "--memory-mib=20480", gpus=2)

    def activity() -> list["Sample"]:
        found = tenant.exported("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
        return found if sum(sample.labels["pod"] == "busy" for sample in found) == 2 else []

    samples = eventually("activity of both GPUs", activity)
    held = {s.labels["UUID"]: s for s in samples if s.labels["pod"]}
    free = [s for s in samples if not s.labels["pod"]]
    assert sorted(held) == sorted(tenant.visible_gpus("busy"))
    assert [s.value for s in held.values()] == pytest.approx([0.3, 0.3], abs=0.05)
    assert {(s.labels["namespace"], s.labels["container"]) for s in held.values()} == {(NAMESPACE, "main")}
    assert [s.value for s in free] == [0.0, 0.0]
    used = {s.labels["pod"]: s.value for s in tenant.exported("DCGM_FI_DEV_FB_USED")}
    assert used == {"busy": 20480.0, "": 0.0}
    left = {s.labels["pod"]: s.value for s in tenant.exported("DCGM_FI_DEV_FB_FREE")}
    assert left == {"busy": 81920.0 - 640.0 - 20480.0, "": 81920.0 - 640.0}


def test_a_gpu_whose_pod_cannot_be_asked_has_no_activity_rather_than_none(tenant: "Tenant") -> None:
    tenant.start("silent", "--listen=:8003", gpus=1)

    def reach() -> list[float]:
        pods = tenant.exported("emulated_exporter_pod_up")
        return [s.value for s in pods if s.labels["pod"] == "silent"]

    assert eventually("the exporter to try", reach) == [0.0]
    assert [s.labels["pod"] for s in tenant.exported("DCGM_FI_PROF_GR_ENGINE_ACTIVE")] == ["", "", ""]
    assert "silent" in {s.labels["pod"] for s in tenant.exported("DCGM_FI_DEV_FB_RESERVED")}


def test_gpus_come_back_after_a_kubelet_restart_and_held_ones_stay_held(tenant: "Tenant") -> None:
    tenant.start("before", gpus=2)
    held = tenant.visible_gpus("before")
    log = tenant.cluster.log_file(f"gpu-device-plugin-{NODE}")
    registered = log.read_text().count("Registered with the kubelet")

    Supervisor(tenant.cluster.layout).stop(f"kubelet-{NODE}")
    tenant.cluster.up()
    eventually(
        "the plugin to register again",
        lambda: log.read_text().count("Registered with the kubelet") > registered,
    )
    eventually("four GPUs again", lambda: tenant.allocatable() == "4")
    tenant.start("after", gpus=2)
    assert not set(tenant.visible_gpus("after")) & set(held)
    holders = {s.labels["UUID"]: s.labels["pod"] for s in tenant.exported("DCGM_FI_DEV_FB_RESERVED")}
    assert [holders[identity] for identity in held] == ["before", "before"]


def test_prometheus_finds_an_annotated_pod_and_the_figures_of_its_gpus_and_host(tenant: "Tenant") -> None:
    cluster = tenant.cluster
    cluster.load_image(monitoring.prometheus_image(print))
    cluster.kubectl("apply", "-k", str(REPOSITORY / "manifests" / "monitoring" / "dev"))
    cluster.kubectl(
        "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=120s", timeout=150
    )
    tenant.start("seen", "--busy=0.5", "--cores=3", gpus=1, annotated=True)
    tenant.start("unasked", gpus=1)

    up = tenant.query(f'up{{namespace="{NAMESPACE}"}}', at_least=1)
    assert [(s.labels["job"], s.labels["pod"], s.labels["node"], s.value) for s in up] == [
        ("pods", "seen", NODE, 1.0)
    ]
    (activity,) = tenant.query('avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod="seen"}[30s])', at_least=1)
    assert activity.value == pytest.approx(0.5, abs=0.05)
    assert (activity.labels["namespace"], activity.labels["container"]) == (NAMESPACE, "main")
    (cores,) = tenant.query('irate(container_cpu_usage_seconds_total{pod="seen"}[30s])', at_least=1)
    assert cores.value == pytest.approx(3.0, abs=0.2)
    (quota,) = tenant.query(
        'container_spec_cpu_quota{pod="seen"} / on(pod) container_spec_cpu_period{pod="seen"}', at_least=1
    )
    assert quota.value == 8.0, "the container's CPU limit is its number of emulated cores"


@dataclass(frozen=True)
class Sample:
    """One series of a metrics page or of a query's answer."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Tenant:
    """Somebody who runs pods in a namespace, and looks at what the cluster says about them."""

    cluster: Cluster

    def create(self, name: str, *arguments: str, gpus: int, annotated: bool = False) -> None:
        """Create a pod of one container; `arguments` go to the program in it."""
        limits = {"cpu": "8", emulation.NODE.resource: str(gpus)}
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": list(arguments),
            "resources": {"limits": limits, "requests": {"cpu": "10m"}},
        }
        scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": "8002"} if annotated else {}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": scrape},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def start(self, name: str, *arguments: str, gpus: int, annotated: bool = False) -> None:
        """Create a pod and wait until it runs."""
        self.create(name, *arguments, gpus=gpus, annotated=annotated)
        self.await_running(name)

    def await_running(self, name: str) -> None:
        """Wait until a pod runs and has an address."""

        def running() -> bool:
            status = self.pod(name)["status"]
            assert status["phase"] != "Failed", status
            return status["phase"] == "Running" and bool(status.get("podIP"))

        eventually(f"pod {name} running", running)

    def pod(self, name: str) -> dict[str, Any]:
        """A pod as the API server has it."""
        found: dict[str, Any] = json.loads(
            self.cluster.kubectl("-n", NAMESPACE, "get", "pod", name, "-o", "json")
        )
        return found

    def condition(self, name: str, kind: str) -> dict[str, str] | None:
        """A pod's condition, if it has it."""
        conditions: list[dict[str, str]] = self.pod(name)["status"].get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), None)

    def visible_gpus(self, name: str) -> list[str]:
        """The GPUs that a pod's process sees."""
        address = self.pod(name)["status"]["podIP"]
        return eventually("the pod's answer", lambda: fetch(f"http://{address}:8002/visible")).split()

    def node(self) -> dict[str, Any]:
        """The first node."""
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", "node", NODE, "-o", "json"))
        return found

    def allocatable(self) -> str | None:
        """How many GPUs the scheduler may count on."""
        count: str | None = self.node()["status"]["allocatable"].get(emulation.NODE.resource)
        return count

    def exported(self, family: str) -> list[Sample]:
        """The series of a family on the node's exporter, now."""
        addresses = self.node()["status"]["addresses"]
        address = next(a["address"] for a in addresses if a["type"] == "InternalIP")
        page = fetch(f"http://{address}:{emulation.EXPORTER_PORT}/metrics") or ""
        series = re.findall(rf"^{family}\{{(.*)\}} (\S+)$", page, re.MULTILINE)
        return [
            Sample(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in series
        ]

    def query(self, expression: str, at_least: int) -> list[Sample]:
        """What Prometheus answers, once it has at least so many series."""
        service = json.loads(
            self.cluster.kubectl("-n", "monitoring", "get", "service", "prometheus", "-o", "json")
        )
        parameters = urllib.parse.urlencode({"query": expression})
        url = f"http://{service['spec']['clusterIP']}:9090/api/v1/query?{parameters}"

        def answer() -> list[Sample]:
            result = json.loads(fetch(url) or '{"data": {"result": []}}')["data"]["result"]
            found = [Sample(r["metric"], float(r["value"][1])) for r in result]
            return found if len(found) >= at_least else []

        return eventually(expression, answer)


def succeeds(cluster: Cluster, *arguments: str) -> bool:
    """Whether a kubectl command succeeds."""
    try:
        cluster.kubectl(*arguments)
    except ClusterError:
        return False
    return True
