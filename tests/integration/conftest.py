"""One API server for all integration tests, with the CRD installed; a namespace of its own for each test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from kubernetes import client

from devcluster import golang
from slo_operator.api.generate import DEFAULT_OUTPUT
from slo_operator.kube import KubeClient
from tests.integration.apiserver import ApiServer, running

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in this folder need the API server, unless they say that they need something else."""
    for item in items:
        others = ("unit", "triton", "e2e", "goal")
        if HERE in item.path.parents and not any(item.get_closest_marker(name) for name in others):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """etcd, kube-apiserver and the garbage collector, with the CRD established.

    INTEGRATION_BINARY names a cluster binary that is there; else it is built, or taken from the cache.
    """
    given = os.environ.get("INTEGRATION_BINARY")
    binary = Path(given) if given else golang.build(golang.kubernetes(), print)
    with running(binary, tmp_path_factory.mktemp("apiserver"), _install_crd) as server:
        yield server


def _install_crd(server: ApiServer) -> None:
    done = server.kubectl("apply", "--server-side", "-f", str(DEFAULT_OUTPUT))
    assert done.returncode == 0, done.stderr
    name = yaml.safe_load(DEFAULT_OUTPUT.read_text())["metadata"]["name"]
    established = server.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    assert established.returncode == 0, established.stderr


@pytest.fixture(scope="session")
def api_client(api_server: ApiServer) -> Iterator[client.ApiClient]:
    with api_server.client() as connection:
        yield connection


@pytest.fixture(scope="session")
def kube(api_client: client.ApiClient) -> KubeClient:
    """The client that the operator uses."""
    return KubeClient(api_client)


@pytest.fixture
def namespace(api_client: client.ApiClient) -> str:
    name = f"it-{uuid4().hex[:8]}"
    client.CoreV1Api(api_client).create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    return name


def eventually(what: str, check: Any, seconds: float = 30.0) -> None:
    """Wait until `check` is true; fail saying `what` was awaited."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
