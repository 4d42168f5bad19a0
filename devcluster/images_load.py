"""Bringing images into the nodes without a registry."""

from collections.abc import Sequence
from pathlib import Path

from devcluster import configs
from devcluster.node import Node
from devcluster.shell import ClusterError, run

_CTR = ("ctr", "--address", configs.CONTAINERD_SOCKET, "--namespace", "k8s.io")


def full_reference(reference: str) -> str:
    """An image's name as containerd and the kubelet spell it: `a/b` → `docker.io/a/b:latest`."""
    first, _, rest = reference.partition("/")
    if not rest:
        reference = f"docker.io/library/{reference}"
    elif not ("." in first or ":" in first or first == "localhost"):
        reference = f"docker.io/{reference}"
    last = reference.rpartition("/")[2]
    return reference if ":" in last or "@" in last else f"{reference}:latest"


def loaded(node: Node) -> set[str]:
    """The names of the images that a node has."""
    return set(node.run_inside(*_CTR, "images", "list", "--quiet").split())


def load(nodes: Sequence[Node], archive: Path) -> list[str]:
    """Import an archive (docker-archive or OCI layout, as tar) into every node; the names that it brought.

    `ClusterError` when there is no such file, or when containerd cannot read it.
    """
    if not archive.is_file():
        raise ClusterError(f"{archive}: no such image archive")
    names: list[str] = []
    for node in nodes:
        with archive.open("rb") as handle:
            command = ["nsenter", *node.namespaces, "--", *_CTR, "images", "import", "--all-platforms", "-"]
            said = run(command, stdin=handle, timeout=600)
        names = [line.split()[1] for line in said.splitlines() if line.startswith("unpacking ")] or names
    return names
