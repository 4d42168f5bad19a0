"""The development cluster's Prometheus: a Go module built with Kubernetes discovery, packed as an image.

`python -m devcluster.monitoring image` (or `promtool`) builds it if need be and prints where it is.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from devcluster.golang import Program, build
from devcluster.layout import PACKAGE, cache_folder
from devcluster.scratch_image import write_scratch_image
from devcluster.shell import ClusterError, Progress

IMAGE = "docker.io/inferenceslo/prometheus:dev"
VERSION = "3.16.0"
"""As the module's v0.316.0 calls itself; the image in manifests/monitoring/base has the same."""

_MODULE = PACKAGE / "prometheus"
_TAGS = ("netgo", "remove_all_sd", "enable_kubernetes_sd")
_LDFLAGS = ("-s", "-w", f"-X=github.com/prometheus/common/version.Version={VERSION}")


def prometheus() -> Program:
    """The server, without web pages and with Kubernetes as its only kind of service discovery."""
    return Program("prometheus", _MODULE, "github.com/prometheus/prometheus/cmd/prometheus", _LDFLAGS, _TAGS)


def promtool() -> Program:
    """The tool that checks configurations and tests rules."""
    return Program("promtool", _MODULE, "github.com/prometheus/prometheus/cmd/promtool", _LDFLAGS, _TAGS)


def prometheus_image(say: Callable[[str], None]) -> Path:
    """The archive of `IMAGE`, made when the program has changed. `ClusterError` when it does not build."""
    program = prometheus()
    archive = cache_folder() / "images" / f"prometheus-{program.key()}.tar"
    if not archive.exists():
        binary = build(program, say)
        write_scratch_image(archive, IMAGE, {"/bin/prometheus": binary}, ["/bin/prometheus"])
    return archive


def main(arguments: list[str]) -> int:
    """`image` or `promtool`: build it and print its path; 2 for anything else."""
    say = Progress()
    makers: dict[str, Callable[[], Path]] = {
        "image": lambda: prometheus_image(say),
        "promtool": lambda: build(promtool(), say),
    }
    if len(arguments) != 1 or arguments[0] not in makers:
        print(f"usage: python -m devcluster.monitoring {'|'.join(makers)}", file=sys.stderr)
        return 2
    try:
        print(makers[arguments[0]]())
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
