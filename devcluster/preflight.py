"""What the machine must be and have, checked before anything is changed; each failure is one line."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from devcluster.layout import cache_folder
from devcluster.shell import ENVIRONMENT, ClusterError

# A first build fills 3 GB of Go's cache and 1 GB of modules; a node with all images takes about 4 GB.
_DISK_COLD_GB = 12
_DISK_WARM_GB = 4

_WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_WATCHERS = 2048

# Program → the Debian package that brings it.
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "busybox": "busybox-static",
}
_FILES = {
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}


def check(state: Path, warm: bool, say: Callable[[str], None]) -> None:
    """Raise `ClusterError` with what is wrong and what to do, or have everything that a cluster needs installed."""
    system = check_system(platform.system(), platform.machine(), read_os_release(), os.geteuid())
    if system is not None:
        raise ClusterError(system)
    needed_gb = _DISK_WARM_GB if warm else _DISK_COLD_GB
    for folder in (state, cache_folder()):
        shortage = check_disk(folder, shutil.disk_usage(_existing(folder)).free, needed_gb)
        if shortage is not None:
            raise ClusterError(shortage)
    install(missing_packages(), say)
    raise_watch_limit(_WATCHERS, say)


def raise_watch_limit(path: Path, say: Callable[[str], None]) -> None:
    """Allow more watchers of files than Linux does by default: a node needs about 30 of the 128 that root has.

    The one setting of the host that is changed; until the next boot, and never down.
    """
    if path.exists() and int(path.read_text()) < _ENOUGH_WATCHERS:
        say(
            f"fs.inotify.max_user_instances: {path.read_text().strip()} → {_ENOUGH_WATCHERS}, until the next boot"
        )
        path.write_text(str(_ENOUGH_WATCHERS))


def check_system(system: str, machine: str, release: dict[str, str], user: int) -> str | None:
    """Why a cluster cannot run here, or None."""
    if system != "Linux":
        return f"devcluster needs Linux (this is {system}): run it on a Debian 12 machine or in a virtual one"
    if machine != "x86_64":
        return (
            f"devcluster needs an x86_64 machine (this is {machine}): the serving image exists for no other"
        )
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        name = release.get("PRETTY_NAME", "an unknown system")
        return f"devcluster needs Debian 12 (this is {name}): it uses containerd 1.6 and runc of that release"
    return check_user(user)


def check_user(user: int) -> str | None:
    """Why a user may not do it, or None."""
    if user != 0:
        return "devcluster needs root (namespaces, mounts, control groups): run the same command with sudo"
    return None


def check_rights() -> None:
    """Raise `ClusterError` unless this process is root's."""
    wrong = check_user(os.geteuid())
    if wrong is not None:
        raise ClusterError(wrong)


def check_disk(folder: Path, free_bytes: int, needed_gb: int) -> str | None:
    """Why a folder's disk is too full, or None."""
    free_gb = free_bytes / 1e9
    if free_gb < needed_gb:
        return f"{folder}: {free_gb:.1f} GB free, {needed_gb} GB needed: free some, or choose another disk with --state"
    return None


def read_os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """The fields of `os-release`, empty when there is none."""
    if not path.exists():
        return {}
    pairs = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    return {key: value.strip('"') for key, _, value in pairs}


def missing_packages() -> list[str]:
    """The Debian packages to install."""
    absent = {
        package
        for program, package in PACKAGES.items()
        if not shutil.which(program, path=ENVIRONMENT["PATH"])
    }
    absent |= {package for file, package in _FILES.items() if not Path(file).exists()}
    return sorted(absent)


def install(packages: list[str], say: Callable[[str], None]) -> None:
    """Install Debian packages. Services that they bring (containerd's) are not started: the nodes have their own."""
    if not packages:
        return
    say(f"installing Debian packages: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
            raise ClusterError(f"apt-get {words[0]} failed: {said[0]}; install by hand: {' '.join(packages)}")


def snapshotter(state: Path) -> str:
    """How containerd layers images: overlayfs, or plain copies where the disk is itself an overlay."""
    folder = _existing(state)
    done = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(folder)], capture_output=True, text=True, check=False
    )
    return "native" if done.stdout.strip() in ("overlayfs", "ecryptfs", "nfs") else "overlayfs"


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
