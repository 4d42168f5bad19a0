"""`python -m slo_operator`: run the operator, in a cluster or outside of it with KUBECONFIG."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from pathlib import Path

from slo_operator.config import DEFAULT_PATH, ConfigError, OperatorConfig, load_config


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a signal, 2 when the configuration or the cluster's credentials are unusable."""
    parser = argparse.ArgumentParser(prog="python -m slo_operator", description=__doc__)
    parser.add_argument("--config", type=Path, help=f"YAML file (default: {DEFAULT_PATH} if it exists)")
    parser.add_argument("--verbose", action="store_true", help="log at level DEBUG")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s",
    )
    logging.getLogger("urllib3").setLevel(logging.INFO)
    try:
        config = _config(options.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return run(config)


def _config(path: Path | None) -> OperatorConfig:
    if path is None and not DEFAULT_PATH.exists():
        return OperatorConfig()
    return load_config(path or DEFAULT_PATH)


def run(config: OperatorConfig) -> int:
    """Run until a signal."""
    # Importing all of this takes a second; errors in the configuration should not.
    import kopf
    from kubernetes.config import ConfigException

    from slo_operator.app import Operator, Outside
    from slo_operator.handlers import register
    from slo_operator.kube import KubeClient
    from slo_operator.specs import Specs

    try:
        kube = KubeClient.connect()
    except ConfigException as error:
        sys.stderr.write(f"no cluster: {error}; run in a pod with a service account, or set KUBECONFIG\n")
        return 2
    specs = Specs(kube)
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    operator = Operator(config, Outside.real(kube, config, instance), specs.bodies, specs.deaf)
    registry = kopf.OperatorRegistry()
    register(registry, operator, specs)
    kopf.run(registry=registry, standalone=True, clusterwide=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
