"""The development cluster as its users meet it: from inside pods, from the host, after kills, and side by side."""

import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import configs, leaks, network
from devcluster.cluster import Cluster, Record
from devcluster.layout import REPOSITORY
from devcluster.processes import Supervisor
from devcluster.ranges import Ranges
from devcluster.shell import ClusterError, run
from tests.e2e.probes import Bench
from tests.e2e.waiting import eventually
from tests.e2e.web import fetch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NODE = "a100-node-0"


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[Bench]:
    found = Bench(cluster, "devcluster-test")
    found.open()
    found.start("client", "exec sleep 3600")
    found.serve("web")
    yield found
    found.close()


# -- from inside a pod -------------------------------------------------------------------------------------------------


def test_a_pod_reaches_the_api_server_by_the_services_address_and_verifies_it(bench: Bench) -> None:
    said = bench.run("client", "echo $KUBERNETES_SERVICE_HOST; kubectl get --raw /version")
    address, version = said.split("\n", 1)
    record = Record.read(bench.cluster.layout)
    assert record is not None
    assert address == str(Ranges(record.index).api_service)
    assert '"gitVersion": "v1.34.4"' in version


def test_a_pod_reaches_the_api_server_by_name_and_verifies_it(bench: Bench) -> None:
    trusted = f"--certificate-authority={ACCOUNT}/ca.crt --token=$(busybox cat {ACCOUNT}/token)"
    raw = "get --raw /version"
    said = bench.run("client", f"kubectl --server=https://kubernetes.default.svc {trusted} {raw}")
    assert '"gitVersion": "v1.34.4"' in said
    with pytest.raises(ClusterError, match=r"certificate is valid for .*not elsewhere"):
        bench.run(
            "client",
            f"kubectl --server=https://kubernetes.default.svc --tls-server-name=elsewhere {trusted} {raw}",
        )


def test_a_pod_without_a_role_may_not_read_secrets(bench: Bench) -> None:
    with pytest.raises(ClusterError, match="cannot list resource"):
        bench.run("client", "kubectl get secrets")


@pytest.mark.parametrize("name", ["web", "web.devcluster-test", "web.devcluster-test.svc.cluster.local"])
def test_a_pod_reaches_a_service_by_name(bench: Bench, name: str) -> None:
    bench.reaches("client", f"http://{name}:8000", "web")


def test_a_pod_reaches_itself_through_its_own_service(bench: Bench) -> None:
    bench.reaches("web", "http://web:8000", "web")


def test_a_headless_service_resolves_to_the_pods_address(bench: Bench) -> None:
    bench.kubectl("expose", "pod/web", "--name=web-headless", "--port=8000", "--cluster-ip=None")
    pod = bench.get("pod", "web")["status"]["podIP"]
    name = "web-headless.devcluster-test.svc.cluster.local"

    def resolved() -> bool:
        return pod in bench.run("client", f"busybox nslookup {name} || true")

    eventually(f"resolved to {pod}", resolved)


def test_a_name_outside_the_cluster_does_not_exist(bench: Bench) -> None:
    said = bench.run("client", "busybox nslookup registry.example || true")
    assert "NXDOMAIN" in said


# -- from the host -----------------------------------------------------------------------------------------------------


def test_the_host_reaches_pods_and_services(bench: Bench) -> None:
    pod = bench.get("pod", "web")["status"]["podIP"]
    service = bench.get("service", "web")["spec"]["clusterIP"]
    eventually("the pod's page", lambda: fetch(f"http://{pod}:8000/") == "web\n")
    eventually("the Service's page", lambda: fetch(f"http://{service}:8000/") == "web\n")


def test_a_pod_reaches_the_host_by_the_links_address(bench: Bench, tmp_path: Path) -> None:
    record = Record.read(bench.cluster.layout)
    assert record is not None
    host = Ranges(record.index).host
    (tmp_path / "index.html").write_text("host\n")
    command = [
        sys.executable,
        "-m",
        "http.server",
        "--bind",
        str(host),
        "--directory",
        str(tmp_path),
        "18123",
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        bench.reaches("client", f"http://{host}:18123", "host")
    finally:
        server.kill()
        server.wait()


def test_the_kubelet_answers_nobody_without_a_certificate(cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=str(cluster.layout.pki / "ca.crt"))
    record = Record.read(cluster.layout)
    assert record is not None
    connection = http.client.HTTPSConnection(
        str(Ranges(record.index).node(0)), 10250, context=context, timeout=10
    )
    connection.request("GET", "/pods")
    assert connection.getresponse().status == 401


def test_the_host_keeps_its_own_settings_and_mounts(bench: Bench) -> None:
    inside = [f"--mount={bench.cluster.layout.run}/mount/{NODE}"]
    # The kubelet wants 10 seconds until a reboot after a panic; it wrote that to a copy.
    assert run(["nsenter", *inside, "cat", "/proc/sys/kernel/panic"]).strip() == "10"
    assert not os.path.ismount(configs.KUBELET_ROOT)
    pod = bench.get("pod", "client")["metadata"]["uid"]
    assert pod in run(["nsenter", *inside, "cat", "/proc/self/mountinfo"])
    assert pod not in Path("/proc/self/mountinfo").read_text()


# -- up, again and after kills -----------------------------------------------------------------------------------------


def pids(cluster: Cluster) -> dict[str, int]:
    supervisor = Supervisor(cluster.layout)
    found = {name: supervisor.find(name) for name in supervisor.names()}
    return {name: running.pid for name, running in found.items() if running is not None}


def test_up_on_a_running_cluster_changes_nothing(cluster: Cluster) -> None:
    before = pids(cluster)
    assert {"etcd", "kube-apiserver", "kube-proxy", f"kubelet-{NODE}", f"containerd-{NODE}"} <= set(before)
    cluster.up()
    assert pids(cluster) == before


@pytest.mark.parametrize(
    "victims", [(f"kubelet-{NODE}", "kube-apiserver"), ("etcd",), (f"containerd-{NODE}", "kube-proxy")]
)
def test_up_repairs_what_was_killed_and_pods_live_on(bench: Bench, victims: tuple[str, ...]) -> None:
    pod = bench.get("pod", "web")
    before = pids(bench.cluster)
    for victim in victims:
        os.kill(before[victim], signal.SIGKILL)
    eventually("dead", lambda: not set(victims) & set(pids(bench.cluster)))
    bench.cluster.up()
    after = pids(bench.cluster)
    assert {name for name in before if before[name] != after.get(name)} == set(victims)
    bench.reaches("client", "http://web:8000", "web")
    now = bench.get("pod", "web")
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert now["status"]["containerStatuses"][0]["restartCount"] == 0


# -- a second cluster --------------------------------------------------------------------------------------------------


def start_up(state: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "devcluster", "up", "--nodes", "2", "--state", str(state)]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def second(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes beside the first. Its first three `up` were killed on the way, ever later."""
    other = Cluster(tmp_path_factory.mktemp("second") / "state")
    try:
        for seconds in (0.5, 1.5, 4.0):
            interrupted = start_up(other.layout.state)
            time.sleep(seconds)
            interrupted.kill()
            interrupted.wait()
        other.up(nodes=2)
        yield other
    finally:
        other.down()


def test_an_up_that_was_killed_on_its_way_is_resumed(second: Cluster) -> None:
    found = second.status()
    assert {what.split(",")[0] for what in found.values()} == {"running", "Ready"}
    assert {f"node {NODE}", "node a100-node-1"} <= set(found)


def test_two_clusters_run_side_by_side(cluster: Cluster, second: Cluster) -> None:
    assert set(cluster.status().values()) & {"Ready"}
    uids = {
        each.kubectl("get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}")
        for each in (cluster, second)
    }
    assert len(uids) == 2
    claims = network.claims()
    assert {str(cluster.layout.state), str(second.layout.state)} <= set(claims.values())


def test_pods_on_two_nodes_reach_each_other(second: Cluster) -> None:
    bench = Bench(second, "nodes-test")
    bench.open()
    bench.serve("far", node="a100-node-1")
    bench.start("near", "exec sleep 3600", node=NODE)
    bench.reaches("near", "http://far:8000", "far")
    addresses = [bench.get("pod", name)["status"]["podIP"].rsplit(".", 1)[0] for name in ("near", "far")]
    assert len(set(addresses)) == 2


def test_down_leaves_nothing_behind_and_the_neighbour_alone(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    third = Cluster(tmp_path_factory.mktemp("third") / "state")
    try:
        third.up()
        held = leaks.find(third.layout)
        kinds = {what.split()[0] for what in held}
        assert {"process", "mount", "network", "link", "route", "control", "address"} <= kinds
        runtime = Supervisor(third.layout).find(f"containerd-{NODE}")
        assert runtime is not None
        os.kill(runtime.pid, signal.SIGKILL)
    finally:
        third.down()
    assert leaks.find(third.layout) == []
    assert not third.layout.state.exists()
    assert set(cluster.status().values()) & {"Ready"}


def test_a_cluster_without_its_state_folder_is_replaced_and_goes_down(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Someone removed the state folder under a running cluster: what the kernel knows is enough."""
    third = Cluster(tmp_path_factory.mktemp("lost") / "state")
    try:
        third.up()
        shutil.rmtree(third.layout.state, ignore_errors=True)
        third.up()
        assert set(third.status().values()) & {"Ready"}
        shutil.rmtree(third.layout.state, ignore_errors=True)
    finally:
        third.down()
    assert leaks.find(third.layout) == []
    assert set(cluster.status().values()) & {"Ready"}
