"""The operator's own process against a real API server, with the rights of its service account.

There are no nodes, so no pod ever runs, and no Prometheus: what is tested is what holds then.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from slo_operator.kube import DEPLOYMENTS, INFERENCE_SLOS, SECRETS, KubeClient, KubeError
from tests.integration.apiserver import ApiServer
from tests.integration.conftest import eventually
from tests.integration.leash import LEASH
from tests.integration.resources import SPEC, resource, with_values

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
CHILD = "assistant-chat"


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[bytes]
    log: Path


@pytest.fixture(scope="module")
def credentials(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with a token of the operator's service account."""
    done = api_server.kubectl("apply", "--server-side", "-k", str(BASE))
    assert done.returncode == 0, done.stderr
    token = api_server.kubectl("create", "token", "-n", "inferenceslo-system", "inferenceslo-operator")
    assert token.returncode == 0, token.stderr
    body = yaml.safe_load(api_server.kubeconfig().read_text())
    body["users"][0]["user"] = {"token": token.stdout.strip()}
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    path.write_text(yaml.safe_dump(body))
    return path


@pytest.fixture
def operator(credentials: Path, tmp_path: Path) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = tmp_path / "config.yaml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "interval": "1s",
                "httpPort": port,
                "traces": {"enabled": False, "port": 0},
                "prometheus": {"url": "http://127.0.0.1:1", "timeout": "1s"},
            }
        )
    )
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*LEASH, sys.executable, "-m", "slo_operator", "--config", str(configuration)],
            env=os.environ | {"KUBECONFIG": str(credentials)},
            stdout=output,
            stderr=output,
        )
    yield Running(process, log)
    process.terminate()
    try:
        process.wait(30)
    finally:
        process.kill()
    said = log.read_text()
    assert "(403)" not in said
    assert "Forbidden" not in said
    assert "Traceback" not in said


def condition(kube: KubeClient, namespace: str, kind: str) -> dict[str, Any]:
    found = kube.get(INFERENCE_SLOS, namespace, "assistant").get("status", {}).get("conditions", [])
    return next((c for c in found if c["type"] == kind), {})


def version(kube: KubeClient, namespace: str) -> tuple[str, str]:
    resources = kube.get(INFERENCE_SLOS, namespace, "assistant"), kube.get(DEPLOYMENTS, namespace, CHILD)
    return resources[0]["metadata"]["resourceVersion"], resources[1]["metadata"]["resourceVersion"]


def exists(kube: KubeClient, namespace: str) -> bool:
    try:
        kube.get(DEPLOYMENTS, namespace, CHILD)
    except KubeError as error:
        if error.not_found:
            return False
        raise
    return True


def settled(kube: KubeClient, namespace: str) -> None:
    """Children are there and the status has been stable for five rounds."""
    eventually("the Deployment", lambda: exists(kube, namespace))
    eventually("the conditions", lambda: condition(kube, namespace, "Ready").get("status") == "False")
    deadline = time.monotonic() + 30
    before, since = version(kube, namespace), time.monotonic()
    while time.monotonic() - since < 5:
        assert time.monotonic() < deadline, "the resource is written again and again"
        time.sleep(0.5)
        now = version(kube, namespace)
        if now != before:
            before, since = now, time.monotonic()


def test_a_steady_state_writes_nothing_and_a_hand_edit_is_put_right(
    operator: Running, kube: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    kube.create(INFERENCE_SLOS, resource(namespace))
    settled(kube, namespace)
    key = kube.get(SECRETS, namespace, f"{CHILD}-control")["data"]
    assert condition(kube, namespace, "SLOMet")["status"] == "Unknown"
    assert condition(kube, namespace, "MetricsAvailable")["status"] == "False"

    done = api_server.kubectl("scale", f"deployment/{CHILD}", "--replicas=9", "-n", namespace)
    assert done.returncode == 0, done.stderr
    eventually("replicas back", lambda: kube.get(DEPLOYMENTS, namespace, CHILD)["spec"]["replicas"] == 1)
    assert kube.get(SECRETS, namespace, f"{CHILD}-control")["data"] == key


def test_a_deleted_child_comes_back(
    operator: Running, kube: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    kube.create(INFERENCE_SLOS, resource(namespace))
    eventually("the Deployment", lambda: exists(kube, namespace))
    done = api_server.kubectl("delete", "deployment", CHILD, "-n", namespace)
    assert done.returncode == 0, done.stderr
    eventually("the Deployment again", lambda: exists(kube, namespace))


def test_a_spec_that_only_the_operator_can_refuse_stalls_and_says_which_field(
    operator: Running, kube: KubeClient, namespace: str
) -> None:
    spec = with_values(SPEC, {"servers.0.template.spec.containers.0.args": ["--model-repository=/x"]})
    kube.create(INFERENCE_SLOS, resource(namespace, spec=spec))
    eventually("Stalled", lambda: condition(kube, namespace, "Stalled").get("status") == "True")
    assert "args[0]: --model-repository is the operator's" in condition(kube, namespace, "Stalled")["message"]
    assert not exists(kube, namespace)


def test_a_resource_deleted_while_its_loop_turns_is_gone_with_its_children(
    operator: Running, kube: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    kube.create(INFERENCE_SLOS, resource(namespace))
    eventually("the Deployment", lambda: exists(kube, namespace))
    done = api_server.kubectl("delete", "islo", "assistant", "-n", namespace, "--timeout=30s")
    assert done.returncode == 0, done.stderr
    eventually("the Deployment gone", lambda: not exists(kube, namespace))
    time.sleep(3)
    assert not exists(kube, namespace)
    assert operator.process.poll() is None
