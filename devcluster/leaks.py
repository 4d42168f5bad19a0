"""What a cluster has on this machine, outside its state folder. After `down` all of it must be gone."""

import contextlib
from pathlib import Path

from devcluster import cgroups, network, processes
from devcluster.layout import Layout


def find(layout: Layout) -> list[str]:
    """Every process, mount, namespace, link, route, control group or address range that is this cluster's, in words."""
    found = [f"process {pid} ({_name(pid)})" for pid in _processes(layout)]
    found += [f"mount {mount}" for mount in _mounts(layout)]
    found += [f"network namespace {layout.network_namespace}"] if layout.network_namespace.exists() else []
    found += [f"folder {layout.run}"] if layout.run.exists() else []
    found += [f"link {layout.link}"] if network.link_exists(layout.link) else []
    found += [f"control group {group}" for group in cgroups.existing(f"/{layout.name}")]
    claims = network.claims()
    found += [f"address range {index}" for index, owner in claims.items() if owner == str(layout.state)]
    found += [f"route {route}" for route in network.routes_through(layout.link)]
    return found


def _processes(layout: Layout) -> list[int]:
    """Processes that we started, and those in the pods' control groups."""
    return sorted({*processes.marked(layout.key), *cgroups.processes(f"/{layout.name}")})


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "gone"


def _mounts(layout: Layout) -> list[str]:
    """Mount points of the cluster in any mount namespace on the machine."""
    owned = tuple(f"{path}/" for path in (layout.run, layout.network_namespace, layout.state))
    seen: set[str] = set()
    found: set[str] = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            namespace = (folder / "ns" / "mnt").readlink().name
            if namespace in seen:
                continue
            seen.add(namespace)
            for line in (folder / "mountinfo").read_text().splitlines():
                root, point = line.split()[3:5]
                if any(f"{text}/".startswith(own) for text in (root, point) for own in owned):
                    found.add(point)
    return sorted(found)
