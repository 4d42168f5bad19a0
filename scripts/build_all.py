"""Builds what the tests start, unless the cache has it: Go programs and, as root, container images."""

from __future__ import annotations

import os
import sys

from devcluster import golang, images, monitoring
from devcluster.shell import ClusterError, Progress


def main() -> int:
    say = Progress()
    try:
        for program in (golang.kubernetes(), golang.pause(), golang.coredns(), monitoring.promtool()):
            golang.build(program, say)
        monitoring.prometheus_image(say)
        if os.geteuid() == 0:
            for image in images.IMAGES.values():
                images.build(image, say)
    except ClusterError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
