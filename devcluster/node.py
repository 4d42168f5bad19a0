"""One node: a containerd and a kubelet in a mount namespace of their own.

The kubelet's device-plugin socket, the shims' sockets and the folders of pod logs have constant paths. Each node
therefore sees folders of its own at these paths, and the host sees nothing: no pod's mount, no changed sysctl. The
namespace is pinned by a file, so that a containerd or kubelet that was killed finds the pods' mounts again.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from devcluster import cgroups, configs, emulation, network, pki
from devcluster.api import plain_health
from devcluster.controlplane import ControlPlane
from devcluster.layout import NodeLayout
from devcluster.processes import Component
from devcluster.shell import ClusterError, run, write

# The kubelet sets these for the whole machine (a panic would reboot it, memory would be overcommitted). It may set
# copies of its own instead.
_SHADOWED_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)

_BIND = """
mount --make-rshared /
while [ $# -gt 0 ]; do
  cut -d" " -f5 /proc/self/mountinfo | grep -qxF "$2" || mount --bind "$1" "$2" || exit 1
  shift 2
done
"""


@dataclass(frozen=True)
class Node:
    """A node of a cluster: what it needs on disk and the processes that make it."""

    layout: NodeLayout
    plane: ControlPlane
    snapshotter: str

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def address(self) -> str:
        return str(self.plane.ranges.node(self.layout.index))

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The arguments that take `nsenter` into this node: the cluster's network and the node's mounts."""
        return (f"--net={self.plane.layout.network_namespace}", f"--mount={self.layout.mount_namespace}")

    def run_inside(self, *argv: str, timeout: float = 120.0) -> str:
        """Run a command as if on this node."""
        return run(["nsenter", *self.namespaces, "--", *argv], timeout=timeout)

    def prepare(self) -> None:
        """Control groups, certificates, configuration files and the mount namespace; what is there stays."""
        cgroups.create(self.layout.cgroup)
        self._write_files()
        self._make_mount_namespace()

    def _write_files(self) -> None:
        folder, cluster, ranges = self.layout.folder, self.plane.layout, self.plane.ranges
        for path in (folder / "cni", folder / "opt", folder / "ipam", self.layout.run):
            path.mkdir(parents=True, exist_ok=True)
        authority = pki.Pair.named(cluster.pki, "ca")
        for identity in pki.node_identities(self.name, self.address):
            pki.ensure_certificate(cluster.pki, authority, identity)
        self.plane.write_kubeconfig(folder / "kubelet.kubeconfig", f"kubelet-client-{self.name}")
        server = pki.Pair.named(cluster.pki, f"kubelet-server-{self.name}")
        node_address = ranges.node(self.layout.index)
        kubelet = configs.kubelet(self.layout, node_address, ranges.dns, authority.certificate, server)
        write(folder / "kubelet.yaml", kubelet)
        write(folder / "containerd.toml", configs.containerd(self.layout, self.snapshotter))
        pods = ranges.node_pods(self.layout.index)
        write(folder / "cni" / "10-pods.conflist", configs.cni(pods, folder / "ipam"))
        write(folder / "resolv.conf", "")

    def binds(self) -> list[tuple[Path, Path]]:
        """(own folder or file, constant path at which the node sees it)."""
        folder, volatile = self.layout.folder, self.layout.run
        own = [
            (folder / "kubelet", Path(configs.KUBELET_ROOT)),
            (folder / "pod-logs", Path(configs.POD_LOGS)),
            (folder / "container-logs", Path("/var/log/containers")),
            (folder / "cni-cache", Path("/var/lib/cni")),
            (volatile / "containerd", Path("/run/containerd")),
        ]
        sysctls = [(volatile / "sysctl" / name, Path("/proc/sys") / name) for name in _SHADOWED_SYSCTLS]
        return own + [(copy, real) for copy, real in sysctls if real.exists()]

    def _make_mount_namespace(self) -> None:
        for source, target in self.binds():
            if target.is_relative_to("/proc"):
                source.parent.mkdir(parents=True, exist_ok=True)
                if not source.exists():
                    source.write_text(target.read_text())
            else:
                source.mkdir(parents=True, exist_ok=True)
                network.make_mount_point(target)
        pin = self.layout.mount_namespace
        pin.parent.mkdir(parents=True, exist_ok=True)
        if not is_mounted(pin):
            pin.touch()
            _pin_mount_namespace(pin)
        pairs = [str(path) for pair in self.binds() for path in pair]
        run(["nsenter", f"--mount={pin}", "--", "sh", "-c", _BIND, "sh", *pairs])

    def containerd(self) -> Component:
        def answers() -> bool:
            try:
                self.run_inside(
                    "ctr", "--address", configs.CONTAINERD_SOCKET, "--timeout", "5s", "version", timeout=10
                )
            except ClusterError:
                return False
            return True

        config = self.layout.folder / "containerd.toml"
        argv = ("/usr/bin/containerd", "--config", str(config))
        return Component(f"containerd-{self.name}", argv, self.namespaces, files=(config,), ready=answers)

    def kubelet(self) -> Component:
        labels = ",".join(f"{key}={value}" for key, value in emulation.NODE.labels().items())
        config = self.layout.folder / "kubelet.yaml"
        argv = (
            str(self.plane.binary),
            "kubelet",
            f"--config={config}",
            f"--kubeconfig={self.layout.folder}/kubelet.kubeconfig",
            f"--root-dir={configs.KUBELET_ROOT}",
            f"--cert-dir={configs.KUBELET_ROOT}/pki",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={labels}",
        )
        healthy = plain_health(self.address, 10248)
        return Component(f"kubelet-{self.name}", argv, self.namespaces, files=(config,), ready=healthy)


def _pin_mount_namespace(pin: Path) -> None:
    """Make a mount namespace that the file `pin` keeps alive.

    The kernel lets a namespace be pinned only from an older one, and since 6.18 tells older by numbers that each
    processor counts for itself: a namespace from another processor may be refused (EINVAL), one from ours is not.
    """
    command = ["unshare", f"--mount={pin}", "--propagation", "private", "true"]
    attempts = [command, *(["taskset", "--cpu-list", str(cpu), *command] for cpu in os.sched_getaffinity(0))]
    for number, attempt in enumerate(attempts, start=1):
        try:
            run(attempt)
        except ClusterError:
            if number == len(attempts):
                raise
        else:
            return


def is_mounted(path: Path) -> bool:
    """Whether something is mounted exactly at `path`, as this process sees it."""
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())
