"""The configuration files of the parts, as text: pure functions of addresses and paths. JSON is valid YAML."""

import base64
import json
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from devcluster.layout import NodeLayout
from devcluster.pki import Pair
from devcluster.ranges import Ranges

PAUSE_IMAGE = "inferenceslo/pause:dev"
CLUSTER_DOMAIN = "cluster.local"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET_ROOT = "/var/lib/kubelet"
POD_LOGS = "/var/log/pods"
PROXY_HEALTH_PORT = 10256


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def kubeconfig(server: str, authority: Path, client: Pair, user: str) -> str:
    """A kubeconfig that holds its certificates itself, so that it may be copied anywhere on this machine."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    name = "devcluster"
    credentials = {
        "client-certificate-data": inline(client.certificate),
        "client-key-data": inline(client.key),
    }
    return _text(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": server, "certificate-authority-data": inline(authority)}}
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
    )


def containerd(node: NodeLayout, snapshotter: str) -> str:
    """The configuration of containerd 1.6. In its namespace /run/containerd is the node's own."""
    return f"""\
version = 2
root = "{node.folder}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[debug]
  level = "warn"

[plugins."io.containerd.internal.v1.opt"]
  path = "{node.folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE runc may not lower a score, and dies with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{node.folder}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


def cni(pods: IPv4Network, data: Path) -> str:
    """Pods on `ptp` links. On a bridge, pod → Service → pod on one node would need the module br_netfilter."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(data),
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": ipam}
    return _text({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})


def kubelet(node: NodeLayout, address: IPv4Address, dns: IPv4Address, authority: Path, server: Pair) -> str:
    """The kubelet's configuration: authenticated and authorised by the API server, gentle to a shared machine."""
    return _text(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(address),
            "healthzBindAddress": str(address),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(server.certificate),
            "tlsPrivateKeyFile": str(server.key),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "podLogsDir": POD_LOGS,
            "resolvConf": str(node.folder / "resolv.conf"),
            "clusterDNS": [str(dns)],
            "clusterDomain": CLUSTER_DOMAIN,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": node.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            # The disk is the host's: neither evict pods nor delete images because of what others keep on it.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "localStorageCapacityIsolation": False,
            "enforceNodeAllocatable": [],
            # A container's limit is the number of its emulated cores, which the emulation enforces. Enforced on this
            # machine's few, it would hold back what stands in for GPUs.
            "cpuCFSQuota": False,
            "makeIPTablesUtilChains": False,
            "nodeStatusReportFrequency": "1m",
            "logging": {"verbosity": 0},
        }
    )


def kube_proxy(kubeconfig_file: Path, node_name: str, ranges: Ranges) -> str:
    """kube-proxy with nftables. Limits of the connection tracker belong to the host and stay as they are."""
    return _text(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": str(ranges.pods),
            "clientConnection": {"kubeconfig": str(kubeconfig_file)},
            "hostnameOverride": node_name,
            "healthzBindAddress": f"{ranges.node(0)}:{PROXY_HEALTH_PORT}",
            "metricsBindAddress": f"{ranges.node(0)}:10249",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            "logging": {"verbosity": 0},
        }
    )
