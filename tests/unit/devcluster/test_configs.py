"""What the parts are told: no door left open, nothing of the host's touched, one node never another's."""

import base64
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster import configs, dns, pki
from devcluster.controlplane import ControlPlane
from devcluster.layout import Layout, NodeLayout
from devcluster.node import Node
from devcluster.ranges import Ranges

pytestmark = pytest.mark.unit

CLUSTER = Layout.of("/somewhere/state")
FIRST, SECOND = NodeLayout(CLUSTER, 0), NodeLayout(CLUSTER, 1)
PLANE = ControlPlane(CLUSTER, Ranges(1), Path("/cache/devcluster"))


def kubelet(node: NodeLayout) -> dict[str, object]:
    server = pki.Pair.named(CLUSTER.pki, "kubelet-server")
    text = configs.kubelet(node, Ranges(1).node(node.index), Ranges(1).dns, CLUSTER.pki / "ca.crt", server)
    return dict(json.loads(text))


def test_a_kubelet_lets_nobody_in_unasked() -> None:
    found = kubelet(FIRST)
    assert found["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/somewhere/state/pki/ca.crt"},
    }
    assert found["authorization"] == {"mode": "Webhook"}
    assert "readOnlyPort" not in found  # the default, 0, is closed


def test_a_kubelet_leaves_cpu_limits_to_the_emulation() -> None:
    assert kubelet(FIRST)["cpuCFSQuota"] is False


def test_kubelets_have_addresses_and_control_groups_of_their_own() -> None:
    first, second = kubelet(FIRST), kubelet(SECOND)
    assert (first["address"], second["address"]) == ("10.255.1.2", "10.255.1.3")
    assert first["cgroupRoot"] == f"/inferenceslo-{CLUSTER.key}/a100-node-0"
    assert second["cgroupRoot"] == f"/inferenceslo-{CLUSTER.key}/a100-node-1"


def test_a_kubelet_runs_on_either_version_of_control_groups_and_leaves_the_disk_alone() -> None:
    found = kubelet(FIRST)
    assert found["failCgroupV1"] is False
    assert found["cgroupDriver"] == "cgroupfs"
    assert found["evictionHard"] == {}
    assert found["imageGCHighThresholdPercent"] == 100


def test_containerd_is_the_nodes_own() -> None:
    found = tomllib.loads(configs.containerd(SECOND, "overlayfs"))
    assert found["root"] == "/somewhere/state/nodes/a100-node-1/containerd"
    cri = found["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["netns_mounts_under_state_dir"] is True
    assert cri["sandbox_image"] == "docker.io/inferenceslo/pause:dev"
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/somewhere/state/nodes/a100-node-1/cni"}
    assert cri["containerd"]["snapshotter"] == "overlayfs"


def test_pods_get_addresses_of_their_node() -> None:
    found = json.loads(configs.cni(Ranges(1).node_pods(1), Path("/ipam")))
    (plugin,) = found["plugins"]
    assert plugin["type"] == "ptp"
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.241.2.0/24"}]]


def test_kube_proxy_leaves_the_hosts_connection_tracker_alone() -> None:
    found = json.loads(configs.kube_proxy(Path("/kubeconfig"), "a100-node-0", Ranges(1)))
    assert found["mode"] == "nftables"
    assert found["clusterCIDR"] == "10.241.0.0/16"
    assert found["conntrack"]["maxPerCore"] == found["conntrack"]["min"] == 0


def test_a_kubeconfig_holds_its_certificates_itself(tmp_path: Path) -> None:
    authority = pki.ensure_authority(tmp_path, "ca")
    client = pki.ensure_certificate(tmp_path, authority, pki.Identity("admin", "kubernetes-admin"))
    found = json.loads(configs.kubeconfig("https://10.255.0.2:6443", authority.certificate, client, "admin"))
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    assert cluster["server"] == "https://10.255.0.2:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == authority.certificate.read_bytes()
    assert base64.b64decode(user["client-key-data"]) == client.key.read_bytes()


def test_no_part_of_the_control_plane_is_insecure() -> None:
    components = (PLANE.etcd(), PLANE.api_server(), PLANE.controller_manager(), PLANE.scheduler())
    words = [word for component in components for word in component.argv]
    assert not [word for word in words if "insecure" in word or "token-auth" in word or "http://" in word]
    api = set(PLANE.api_server().argv)
    assert {"--anonymous-auth=false", "--authorization-mode=Node,RBAC"} <= api
    assert "--requestheader-client-ca-file=/somewhere/state/pki/front-proxy-ca.crt" in api
    assert "--service-cluster-ip-range=10.97.0.0/16" in api
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(PLANE.etcd().argv)


def test_every_socket_of_a_node_is_short_enough_for_the_kernel() -> None:
    deep = Layout.of("/" + "/".join(["a-long-folder-name"] * 12))
    node = NodeLayout(deep, 15)
    # Shims append "/s/" and 64 hexadecimal digits below /run/containerd, which is the bind's target.
    assert len("/run/containerd/s/" + "f" * 64) <= 107
    assert len(configs.KUBELET_ROOT + "/device-plugins/kubelet.sock") <= 107
    assert len(str(node.run / "containerd" / "containerd.sock")) <= 107


def test_a_node_sees_its_own_folders_at_the_constant_paths() -> None:
    targets: dict[tuple[str, str], Path] = {}
    for layout in (FIRST, SECOND):
        for own, constant in Node(layout, PLANE, "overlayfs").binds():
            assert own not in targets.values()
            targets[layout.name, str(constant)] = own
    assert targets["a100-node-1", "/var/lib/kubelet"] == SECOND.folder / "kubelet"
    assert targets["a100-node-0", "/run/containerd"] == FIRST.run / "containerd"


def test_the_name_server_answers_at_the_address_that_pods_are_told() -> None:
    items = json.loads(dns.manifest(Ranges(1).dns, "inferenceslo/coredns:abc"))["items"]
    by_kind = {item["kind"]: item for item in items}
    assert by_kind["Service"]["spec"]["clusterIP"] == kubelet(FIRST)["clusterDNS"][0] == "10.97.0.10"  # type: ignore[index]
    pod = by_kind["Deployment"]["spec"]["template"]
    assert pod["metadata"]["labels"] == by_kind["Service"]["spec"]["selector"]
    assert pod["spec"]["containers"][0]["image"] == "inferenceslo/coredns:abc"


def test_a_component_is_started_anew_when_its_command_or_its_file_changes(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("one")
    component = replace(PLANE.scheduler(), files=(config,))
    before = component.fingerprint()
    assert component.fingerprint() == before
    assert replace(component, argv=(*component.argv, "--more")).fingerprint() != before
    config.write_text("two")
    assert component.fingerprint() != before
