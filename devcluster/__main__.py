"""`python -m devcluster`: a real Kubernetes on this machine, and nothing of it left after `down`."""

import argparse
import os
import sys
from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.layout import default_state
from devcluster.shell import ClusterError

_EPILOG = """\
The state folder names the cluster: another folder is another cluster, and both may run side by side. `up` may be
repeated at any time: it starts what is missing and leaves the rest alone. Binaries are built once and kept in
~/.cache/inferenceslo (override: INFERENCESLO_CACHE).
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument(
        "--state",
        type=Path,
        default=default_state(),
        metavar="DIR",
        help="the cluster's folder (default: $DEVCLUSTER_STATE, or build/devcluster in the repository)",
    )
    top = argparse.ArgumentParser(
        prog="python -m devcluster",
        description="A real Kubernetes (etcd, control plane, kubelets, containerd) on one Debian 12 machine.",
        epilog=_EPILOG,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", parents=[state], help="start the cluster, or what is missing of it")
    up.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="nodes, each with a kubelet and a containerd of its own (default: 1)",
    )
    commands.add_parser("down", parents=[state], help="stop the cluster and remove everything of it")
    commands.add_parser(
        "status", parents=[state], help="show the processes and nodes (exit code 1: not all well)"
    )
    logs = commands.add_parser("logs", parents=[state], help="print the log of a process")
    logs.add_argument("name", metavar="NAME", help="a name that `status` shows")
    commands.add_parser(
        "kubeconfig", parents=[state], help="print the path of the administrator's kubeconfig"
    )
    load = commands.add_parser("load-image", parents=[state], help="load an image into every node")
    load.add_argument(
        "image", metavar="ARCHIVE|NAME", help="a docker-archive or OCI tar, or an image of this project"
    )
    commands.add_parser(
        "kubectl", parents=[state], help="run kubectl on the cluster: everything after is kubectl's"
    )
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options, rest = parser().parse_known_args(arguments)
    if rest and options.command != "kubectl":
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    cluster = Cluster(options.state)
    try:
        return _run(cluster, options)
    except ClusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("devcluster: interrupted; `up` goes on from here, `down` removes it", file=sys.stderr)
        return 130


def _run(cluster: Cluster, options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            cluster.up(options.nodes)
        case "down":
            cluster.down()
        case "status":
            return _status(cluster)
        case "logs":
            sys.stdout.write(cluster.log_file(options.name).read_text(errors="replace"))
        case "kubeconfig":
            print(cluster.kubeconfig())
        case "load-image":
            cluster.load_image(options.image)
        case "kubectl":
            cluster.kubeconfig()
            os.execv(cluster.layout.kubectl, [str(cluster.layout.kubectl), *options.rest])
    return 0


def _status(cluster: Cluster) -> int:
    found = cluster.status()
    if not found:
        print(f"no cluster in {cluster.layout.state}")
        return 1
    width = max(map(len, found))
    for name, what in found.items():
        print(f"{name:<{width}}  {what}")
    return int(any("not " in what for what in found.values()))


if __name__ == "__main__":
    sys.exit(main())
