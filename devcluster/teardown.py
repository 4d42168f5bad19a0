"""Taking a cluster down: in an order in which nothing hangs, and by what the kernel knows rather than by our notes."""

import contextlib
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import cgroups, leaks, network, processes
from devcluster.layout import Layout
from devcluster.node import is_mounted
from devcluster.processes import Supervisor
from devcluster.shell import ClusterError, run

# The API server after its clients and before etcd, or it waits for them; containerd after the pods.
_LAST = ("kube-apiserver", "etcd")


def down(layout: Layout, supervisor: Supervisor, say: Callable[[str], None]) -> None:
    """Remove everything of a cluster, whatever state it is in. `ClusterError` when something stays."""
    names = supervisor.names()
    first = [name for name in names if name not in _LAST and not name.startswith("containerd")]
    with ThreadPoolExecutor(max_workers=max(1, len(first))) as pool:
        list(pool.map(supervisor.stop, first))
    cgroups.remove(f"/{layout.name}")
    for name in _LAST:
        # Whoever still watches keeps an API server from ending; its state is etcd's.
        supervisor.stop(name, seconds=3.0)
    if first:
        say("kubelets, pods and control plane stopped")
    for name in names:
        supervisor.stop(name)
    for pid in processes.marked(layout.key):
        start = processes.start_time(pid)
        if start is not None:
            processes.end(pid, start, seconds=2.0)
    cgroups.remove(f"/{layout.name}")
    _unmount(layout.run)
    network.delete(layout)
    network.release(layout)
    _remove_state(layout)
    left = leaks.find(layout)
    if left:
        raise ClusterError(f"{layout.name}: left behind: {'; '.join(left)}")
    say(f"{layout.name} is gone")


def _unmount(folder: Path) -> None:
    """Release the pinned mount namespaces, then the tmpfs that holds the pins."""
    for pin in sorted((folder / "mount").glob("*")):
        while is_mounted(pin):
            run(["umount", pin])
    while is_mounted(folder):
        run(["umount", folder])
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def _remove_state(layout: Layout) -> None:
    """Remove what `up` wrote; the folder itself goes only when nothing else is in it."""
    for path in (
        layout.pki,
        layout.config,
        layout.logs,
        layout.pids,
        layout.state / "etcd",
        layout.state / "nodes",
    ):
        shutil.rmtree(path, ignore_errors=True)
    for file in (layout.kubeconfig, layout.kubectl, layout.record):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        layout.state.rmdir()
