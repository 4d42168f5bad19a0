"""Where a cluster keeps its things, and what they are called.

Everything is named after a short hash of the state folder, so that two folders are two clusters that never meet.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = Path(__file__).resolve().parent


def default_state() -> Path:
    """`DEVCLUSTER_STATE`, or `build/devcluster` in the repository."""
    return Path(os.environ.get("DEVCLUSTER_STATE") or REPOSITORY / "build" / "devcluster")


def cache_folder() -> Path:
    """`INFERENCESLO_CACHE`, or `~/.cache/inferenceslo`: what is costly to make and named after its contents."""
    return Path(os.environ.get("INFERENCESLO_CACHE") or Path.home() / ".cache" / "inferenceslo")


@dataclass(frozen=True)
class Layout:
    """The paths and names of one cluster. Unix sockets live below `run`: their paths may have 107 bytes."""

    state: Path
    key: str

    @classmethod
    def of(cls, state: Path | str | None = None) -> "Layout":
        """The layout of a state folder (default: `default_state()`), which need not exist yet."""
        folder = Path(state or default_state()).resolve()
        return cls(folder, hashlib.sha256(str(folder).encode()).hexdigest()[:8])

    @property
    def name(self) -> str:
        """The cluster's name: of its network namespace, its control groups and its folder in /run."""
        return f"inferenceslo-{self.key}"

    @property
    def link(self) -> str:
        """The host's end of the veth pair (at most 15 characters)."""
        return f"islo-{self.key}"

    @property
    def run(self) -> Path:
        """Volatile files: a tmpfs of the cluster's own."""
        return Path("/run") / self.name

    @property
    def network_namespace(self) -> Path:
        return Path("/run/netns") / self.name

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def pids(self) -> Path:
        return self.state / "pids"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; it works from the host."""
        return self.state / "kubeconfig"

    @property
    def kubectl(self) -> Path:
        """A wrapper script: kubectl with this cluster's kubeconfig."""
        return self.state / "kubectl"

    @property
    def record(self) -> Path:
        """What was chosen when the cluster was first brought up (see `cluster.Record`)."""
        return self.state / "cluster.json"

    @property
    def lock(self) -> Path:
        """Held while the cluster is brought up or down; outside the state folder, which `down` removes."""
        return Path("/run/lock") / f"{self.name}.lock"


@dataclass(frozen=True)
class NodeLayout:
    """The paths and names of one node of a cluster."""

    cluster: Layout
    index: int

    @property
    def name(self) -> str:
        return f"a100-node-{self.index}"

    @property
    def folder(self) -> Path:
        return self.cluster.state / "nodes" / self.name

    @property
    def run(self) -> Path:
        return self.cluster.run / "nodes" / self.name

    @property
    def mount_namespace(self) -> Path:
        """The file that keeps the node's mount namespace alive while no process is in it."""
        return self.cluster.run / "mount" / self.name

    @property
    def cgroup(self) -> str:
        """The kubelet's cgroup root. Two kubelets below one root would tear down each other's pods."""
        return f"/{self.cluster.name}/{self.name}"
