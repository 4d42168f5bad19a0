"""The control groups below which a cluster's pods live, for version 1 (a tree per controller) and version 2 alike."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from devcluster.shell import ClusterError

_MOUNTS = Path("/proc/self/mountinfo")
_REQUIRED = ("cpu", "cpuset", "memory", "pids")
_DELEGATED = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def mount_points(mountinfo: str) -> list[tuple[str, Path]]:
    """(file system type, mount point) of every control group tree in a `mountinfo` text."""
    found = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split(" ", 1)[0]
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, Path(fields.split()[4])))
    return found


def trees() -> list[tuple[str, Path]]:
    """The control group trees of this machine."""
    found = mount_points(_MOUNTS.read_text())
    if not found:
        raise ClusterError(
            "/sys/fs/cgroup: no control groups are mounted; Kubernetes needs them (version 1 or 2)"
        )
    return found


def create(path: str) -> None:
    """Make the group `path` (`/a/b`) in every tree and hand the controllers down to it; what is there stays."""
    for kind, mount in trees():
        create_in(kind, mount, path)


def create_in(kind: str, mount: Path, path: str) -> None:
    """Make the group `path` in the tree at `mount`, of type `cgroup` or `cgroup2`."""
    group = mount
    for part in Path(path.lstrip("/")).parts:
        if kind == "cgroup2":
            _delegate(group)
        child = group / part
        child.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            # A new version 1 cpuset is empty, and a process cannot enter it until it has both.
            if kind == "cgroup" and (child / name).exists() and not (child / name).read_text().strip():
                (child / name).write_text((group / name).read_text())
        group = child
    if kind == "cgroup2":
        _delegate(group)
        _check_delegation(mount, group)


def _check_delegation(mount: Path, group: Path) -> None:
    """Raise `ClusterError` when a controller that the machine has did not come down to `group`."""
    had, has = ((folder / "cgroup.controllers").read_text().split() for folder in (mount, group))
    lost = [controller for controller in _REQUIRED if controller in had and controller not in has]
    if lost:
        raise ClusterError(
            f"{group}: the controllers {', '.join(lost)} cannot be delegated, because processes sit in a group above "
            "it (see cgroup.procs there): move them into a group of their own"
        )


def _delegate(group: Path) -> None:
    """Enable for the children of a version 2 group every controller that it has."""
    available = (group / "cgroup.controllers").read_text().split()
    for controller in _DELEGATED:
        if controller in available:
            with contextlib.suppress(OSError):
                (group / "cgroup.subtree_control").write_text(f"+{controller}")


def processes(path: str) -> set[int]:
    """The processes in the group `path` and below it, in any tree."""
    return {pid for _, group in _groups(path) for pid in _members(group)}


def _members(group: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    return []


def _groups(path: str) -> Iterator[tuple[str, Path]]:
    """(tree type, group), children before their parents."""
    for kind, mount in mount_points(_MOUNTS.read_text()):
        top = mount / path.lstrip("/")
        for folder, _, _ in os.walk(top, topdown=False):
            yield kind, Path(folder)


def remove(path: str, timeout: float = 20.0) -> None:
    """Kill what runs in the group `path` and remove it with all groups below."""
    deadline = time.monotonic() + timeout
    while True:
        for pid in processes(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = []
        for _, group in _groups(path):
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(group)
        if not left:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{left[0]}: still in use after {timeout:.0f} s; processes {sorted(processes(path))}"
            )
        time.sleep(0.1)


def existing(path: str) -> list[Path]:
    """The groups that exist at `path`, over all trees."""
    return [mount / path.lstrip("/") for _, mount in trees() if (mount / path.lstrip("/")).exists()]
