"""One network namespace per cluster, joined to the host by a veth pair.

Pods hang on `ptp` links inside the namespace, so nothing of the cluster shows in the host's tables but one link and two
routes, and deleting the namespace takes all of it along. Processes enter it with `nsenter --net`: `ip netns exec` would
remount /sys and hide the control groups.
"""

import contextlib
import json
import time
from ipaddress import IPv4Network
from pathlib import Path

from devcluster.layout import Layout
from devcluster.ranges import MAX_CLUSTERS, Ranges
from devcluster.shell import ClusterError, exclusive, run

_CLAIMS = Path("/run/inferenceslo")
_MOUNT_POINTS = _CLAIMS / "mount-points"
_INNER = "eth0"


def claim(layout: Layout, preferred: int | None) -> Ranges:
    """Reserve address ranges for a cluster and say which; the same as before when it has some.

    `preferred` is the index in the certificates of an earlier start. `ClusterError` when that one is now taken, or when
    none is free.
    """
    with exclusive(_CLAIMS / "lock"):
        _forget_abandoned()
        taken = claims()
        mine = next((index for index, owner in taken.items() if owner == str(layout.state)), None)
        if mine is not None:
            return Ranges(mine)
        routes = host_networks()
        candidates = range(MAX_CLUSTERS) if preferred is None else (preferred,)
        for index in candidates:
            if index not in taken and Ranges(index).overlaps(routes) is None:
                (_CLAIMS / str(index)).write_text(str(layout.state))
                return Ranges(index)
        if preferred is not None:
            raise ClusterError(
                f"{layout.state}: its address range number {preferred} is now in use by another cluster or by the "
                "host's own network; after `python -m devcluster down` the next `up` takes a free one"
            )
        raise ClusterError(
            f"no free address range: each of the {MAX_CLUSTERS} belongs to a cluster ({', '.join(taken.values())}) "
            f"or overlaps with a route of this host ({', '.join(map(str, routes))}); bring a cluster down"
        )


def claims() -> dict[int, str]:
    """Index → state folder of every cluster that holds address ranges."""
    if not _CLAIMS.is_dir():
        return {}
    return {int(path.name): path.read_text() for path in sorted(_CLAIMS.iterdir()) if path.name.isdigit()}


def _forget_abandoned() -> None:
    """Drop the claims of clusters of which nothing is left: no record, no namespace, and not just being made."""
    for index, owner in claims().items():
        layout, claim_file = Layout.of(owner), _CLAIMS / str(index)
        young = time.time() - claim_file.stat().st_mtime < 60.0
        if not young and not layout.record.exists() and not layout.network_namespace.exists():
            claim_file.unlink()


def release(layout: Layout) -> None:
    """Give the address ranges back; with the last ones go the mount points that clusters made on the host."""
    with exclusive(_CLAIMS / "lock"):
        for index, owner in claims().items():
            if owner == str(layout.state):
                (_CLAIMS / str(index)).unlink()
        if not claims() and _MOUNT_POINTS.exists():
            # Only then: removing a folder unmounts what is mounted on it in other mount namespaces.
            for folder in reversed(_MOUNT_POINTS.read_text().splitlines()):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            _MOUNT_POINTS.unlink()


def make_mount_point(folder: Path) -> None:
    """Make a folder of the host's that clusters mount over, each in its own namespace; note which were not there."""
    with exclusive(_CLAIMS / "lock"):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            with _MOUNT_POINTS.open("a") as handle:
                handle.write(f"{path}\n")


def host_networks() -> list[IPv4Network]:
    """Every IPv4 network that the host has a route to, the default route left out."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]")
    return [IPv4Network(route["dst"], strict=False) for route in routes if route["dst"] != "default"]


def routes_through(link: str) -> list[str]:
    """The destinations that the host reaches through a link."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]")
    return [route["dst"] for route in routes if route.get("dev") == link]


def inside(layout: Layout) -> list[str]:
    """The words before a command that is to run in the cluster's network namespace."""
    return ["nsenter", f"--net={layout.network_namespace}"]


def create(layout: Layout, ranges: Ranges, nodes: int) -> None:
    """Make the namespace, the link and the routes; what is already right stays as it is."""
    if not layout.network_namespace.exists() or not _is_namespace(layout.network_namespace):
        layout.network_namespace.unlink(missing_ok=True)
        run(["ip", "netns", "add", layout.name])
    enter = inside(layout)
    if not link_exists(layout.link):
        run(["ip", "link", "add", layout.link, "type", "veth", "peer", "name", _INNER, "netns", layout.name])
    prefix = ranges.link.prefixlen
    run(["ip", "addr", "replace", f"{ranges.host}/{prefix}", "dev", layout.link])
    run(["ip", "link", "set", layout.link, "up"])
    run([*enter, "ip", "link", "set", "lo", "up"])
    for index in range(nodes):
        run([*enter, "ip", "addr", "replace", f"{ranges.node(index)}/{prefix}", "dev", _INNER])
    run([*enter, "ip", "link", "set", _INNER, "up"])
    run([*enter, "ip", "route", "replace", "default", "via", ranges.host])
    run([*enter, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])
    for network in (ranges.pods, ranges.services):
        run(["ip", "route", "replace", network, "via", ranges.api_server, "dev", layout.link])


def delete(layout: Layout) -> None:
    """Remove the namespace; link, routes and rules go with it once no process is left inside."""
    if layout.network_namespace.exists():
        run(["ip", "netns", "delete", layout.name])
    # The kernel takes the link down by itself, a moment after the namespace.
    deadline = time.monotonic() + 5.0
    while link_exists(layout.link) and time.monotonic() < deadline:
        time.sleep(0.05)
    if link_exists(layout.link):
        run(["ip", "link", "delete", layout.link])


def link_exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def _is_namespace(path: Path) -> bool:
    """Whether the file still has its namespace mounted (after a reboot it has not)."""
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())
