"""A cluster as a whole: up, down, and what can be asked of it in between."""

import contextlib
import datetime
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from devcluster import (
    dns,
    extras,
    golang,
    images,
    images_load,
    network,
    preflight,
    processes,
    scratch_image,
    teardown,
)
from devcluster.api import Api, condition_true, fresh
from devcluster.configs import CLUSTER_DOMAIN, PAUSE_IMAGE
from devcluster.controlplane import ControlPlane
from devcluster.dns_probe import resolves
from devcluster.layout import Layout, NodeLayout
from devcluster.node import Node, is_mounted
from devcluster.processes import Component, Supervisor
from devcluster.ranges import MAX_NODES, Ranges
from devcluster.shell import ClusterError, Progress, run


@dataclass(frozen=True)
class Record:
    """What was chosen when the cluster was made, so that a later `up` makes the same."""

    index: int
    nodes: int
    snapshotter: str

    @classmethod
    def read(cls, layout: Layout) -> "Record | None":
        if not layout.record.exists():
            return None
        return cls(**json.loads(layout.record.read_text()))

    def write(self, layout: Layout) -> None:
        layout.state.mkdir(parents=True, exist_ok=True)
        scratch = layout.record.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(self)) + "\n")
        scratch.rename(layout.record)


class Cluster:
    """The Kubernetes cluster of one state folder (default: see `layout.default_state`)."""

    def __init__(self, state: Path | str | None = None, *, quiet: bool = False) -> None:
        self.layout = Layout.of(state)
        self._say = Progress(quiet)
        self._supervisor = Supervisor(self.layout)

    # -- what others call --------------------------------------------------------------------------------------------

    def up(self, nodes: int | None = None) -> Path:
        """Bring the cluster up, or what is missing of it; returns the kubeconfig.

        `nodes`: as before when None (1 for a new cluster). `ClusterError` says in one line what a person has to do.
        """
        if nodes is not None and not 1 <= nodes <= MAX_NODES:
            raise ClusterError(f"--nodes {nodes}: must be 1 to {MAX_NODES}")
        self._say.restart()
        programs = (golang.kubernetes(), golang.pause(), golang.coredns())
        warm = all(program.binary().exists() for program in programs)
        preflight.check(self.layout.state, warm, self._say)
        with self._locked():
            binary, pause, coredns = (golang.build(program, self._say) for program in programs)
            record = self._record(nodes)
            plane = ControlPlane(self.layout, Ranges(record.index), binary)
            members = self._nodes(plane, record)
            self._prepare(plane, members, record)
            pause_archive = self._image(pause, PAUSE_IMAGE)
            dns_image = f"{dns.REPOSITORY}:{golang.coredns().key()}"
            dns_archive = self._image(coredns, dns_image)
            self._start(plane, members, {PAUSE_IMAGE: pause_archive, dns_image: dns_archive})
            self._apply(dns.manifest(plane.ranges.dns, dns_image))
            self._wait_serving(plane, members)
        return self.layout.kubeconfig

    def down(self) -> None:
        """Take the cluster down and remove its state folder; does nothing when there is none."""
        self._say.restart()
        preflight.check_rights()
        with self._locked():
            teardown.down(self.layout, self._supervisor, self._say)
            self.layout.lock.unlink(missing_ok=True)

    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; `ClusterError` when there is no cluster."""
        self._existing()
        return self.layout.kubeconfig

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Run kubectl on this cluster and return what it says; `ClusterError` when it fails."""
        self._existing()
        return run([self.layout.kubectl, *arguments], stdin=stdin, timeout=timeout)

    def load_image(self, image: Path | str) -> list[str]:
        """Load an image archive, or an image of this project by name, into every node; returns the image names."""
        self._say.restart()
        preflight.check_rights()
        record = self._existing()
        path = Path(image)
        archive = path if path.is_file() else images.archive_of(str(image))
        names = images_load.load(self._nodes(self._plane(record), record), archive)
        self._say(f"loaded {', '.join(names)} into {record.nodes} node{'s' if record.nodes > 1 else ''}")
        return names

    def status(self) -> dict[str, str]:
        """Process name → what it does now, then node name → Ready or not; empty when there is no cluster."""
        record = Record.read(self.layout)
        if record is None:
            return {}
        preflight.check_rights()
        found = {}
        for name in self._supervisor.names():
            running = self._supervisor.find(name)
            found[name] = f"running, pid {running.pid}" if running else "not running (`up` starts it again)"
        plane = self._plane(record)
        for node in self._nodes(plane, record):
            ready = _node_ready(plane.api(), node)
            found[f"node {node.name}"] = "Ready" if ready else "not ready"
        return found

    def log_file(self, name: str) -> Path:
        """The log of a process; `ClusterError` names the processes when there is none of that name."""
        path = self._supervisor.log_file(name)
        if not path.exists():
            known = ", ".join(sorted(log.stem for log in self.layout.logs.glob("*.log"))) or "none yet"
            raise ClusterError(f"{name}: no such process in {self.layout.state}; there are: {known}")
        return path

    # -- how -----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One `up` or `down` of a cluster at a time; the second waits for the first."""
        path = self.layout.lock
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with path.open("w") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._say(f"waiting for another `up` or `down` of {self.layout.state}")
                    fcntl.flock(handle, fcntl.LOCK_EX)
                # A `down` that held the lock before us has removed the file: then ours is nobody else's lock.
                if path.exists() and os.path.samestat(path.stat(), os.fstat(handle.fileno())):
                    yield
                    return

    def _existing(self) -> Record:
        record = Record.read(self.layout)
        if record is None or not self.layout.kubeconfig.exists():
            raise ClusterError(f"{self.layout.state}: no cluster here; `python -m devcluster up` makes one")
        return record

    def _record(self, nodes: int | None) -> Record:
        """The record of the cluster, made or adjusted; claims the address ranges."""
        before = Record.read(self.layout)
        if before is None and (self.layout.network_namespace.exists() or processes.marked(self.layout.key)):
            self._say("removing a cluster whose state folder is gone")
            teardown.down(self.layout, self._supervisor, self._say)
        ranges = network.claim(self.layout, before.index if before else None)
        if before is None:
            record = Record(ranges.index, nodes or 1, preflight.snapshotter(self.layout.state))
        elif nodes is not None and nodes < before.nodes:
            raise ClusterError(
                f"--nodes {nodes}: there are {before.nodes}; more may be added, `down` removes all"
            )
        else:
            record = Record(ranges.index, nodes or before.nodes, before.snapshotter)
        record.write(self.layout)
        return record

    def _plane(self, record: Record) -> ControlPlane:
        return ControlPlane(self.layout, Ranges(record.index), golang.kubernetes().binary())

    def _nodes(self, plane: ControlPlane, record: Record) -> list[Node]:
        return [Node(NodeLayout(self.layout, i), plane, record.snapshotter) for i in range(record.nodes)]

    def _prepare(self, plane: ControlPlane, nodes: list[Node], record: Record) -> None:
        self.layout.run.mkdir(exist_ok=True)
        if not is_mounted(self.layout.run):
            # Private, because a mount namespace cannot be pinned on a mount that is shared with others.
            run(["mount", "-t", "tmpfs", "-o", "mode=0755", self.layout.name, self.layout.run])
            run(["mount", "--make-private", self.layout.run])
        network.create(self.layout, plane.ranges, record.nodes)
        plane.write_files()
        for node in nodes:
            node.prepare()
        self._say(
            f"namespaces, certificates and addresses ready ({self.layout.name}, pods {plane.ranges.pods})"
        )

    def _image(self, binary: Path, reference: str) -> Path:
        """A scratch image of one static binary, kept beside it in the cache."""
        archive = binary.with_name(f"{reference.replace('/', '_').replace(':', '_')}.tar")
        if not archive.exists():
            path = f"/{binary.name}"
            scratch_image.write_scratch_image(archive, reference, {path: binary}, [path])
        return archive

    def _start(self, plane: ControlPlane, nodes: list[Node], images: dict[str, Path]) -> None:
        """The control plane one after the other, containerd and its images beside it, then what needs both."""
        for component in (plane.api_server(), plane.etcd()):
            # In this order: an API server without its etcd takes its time to end.
            self._supervisor.stop_outdated(component)
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            runtimes = [pool.submit(self._start_runtime, node, images) for node in nodes]
            self._ensure(plane.etcd())
            self._ensure(plane.api_server(), timeout=120)
            for component in (plane.controller_manager(), plane.scheduler()):
                self._supervisor.ensure(component)
            for runtime in runtimes:
                runtime.result()
        self._say("API server and containerd ready")
        for component in self._workers(plane, nodes):
            self._supervisor.ensure(component)

    def _workers(self, plane: ControlPlane, nodes: list[Node]) -> list[Component]:
        """What needs the API server and containerd."""
        workers = [plane.proxy(nodes[0].name), *(node.kubelet() for node in nodes)]
        return workers + [component for node in nodes for component in extras.components(node)]

    def _wait_serving(self, plane: ControlPlane, nodes: list[Node]) -> None:
        """Until every part answers, pods can run and find each other."""
        everything = (
            plane.etcd(),
            plane.controller_manager(),
            plane.scheduler(),
            *self._workers(plane, nodes),
        )
        for component in everything:
            self._supervisor.wait_ready(component, timeout=120)
        for node in nodes:
            self._wait(
                f"node {node.name} Ready",
                partial(_node_ready, plane.api(), node),
                f"logs kubelet-{node.name}",
            )
        ranges = plane.ranges
        known = partial(resolves, ranges.dns, f"kubernetes.default.svc.{CLUSTER_DOMAIN}", ranges.api_service)
        self._wait("CoreDNS Ready", known, "kubectl -n kube-system describe pods")
        self._say(f"KUBECONFIG={self.layout.kubeconfig}")

    def _start_runtime(self, node: Node, images: dict[str, Path]) -> None:
        self._ensure(node.containerd())
        have = images_load.loaded(node)
        for reference, archive in images.items():
            if images_load.full_reference(reference) not in have:
                images_load.load([node], archive)

    def _ensure(self, component: Component, timeout: float = 60.0) -> None:
        self._supervisor.ensure(component)
        self._supervisor.wait_ready(component, timeout)

    def _apply(self, manifest: str) -> None:
        apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=devcluster", "-f", "-")
        self.kubectl(*apply, stdin=manifest)

    def _wait(self, what: str, done: Callable[[], bool], look: str, timeout: float = 180.0) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"not {what} after {timeout:.0f} s: `python -m devcluster {look}` says more"
                )
            time.sleep(0.2)
        self._say(what)


def _node_ready(api: Api, node: Node) -> bool:
    """Whether a node says Ready, and said so lately (a kubelet renews its Lease every 10 s)."""
    lease = api.object(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}")
    now = datetime.datetime.now(datetime.UTC)
    return condition_true(api.object(f"/api/v1/nodes/{node.name}"), "Ready") and fresh(
        lease, now, seconds=20.0
    )
