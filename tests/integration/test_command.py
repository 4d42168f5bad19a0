"""The slo command on a real API server: what it finds, and what it says when there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from slo_operator.api.resource import InferenceSLO
from slo_operator.cli.main import main
from slo_operator.kube import INFERENCE_SLOS, KubeClient
from tests.integration.apiserver import ApiServer

Slo = Callable[..., int]
SAMPLE = Path(__file__).resolve().parents[1] / "unit" / "cli" / "assistant.yaml"


@pytest.fixture
def slo(api_server: ApiServer) -> Slo:
    """The command, told which cluster to ask; returns its exit code."""
    kubeconfig = str(api_server.kubeconfig())
    return lambda *arguments: main([*arguments, "--kubeconfig", kubeconfig])


@pytest.fixture
def in_cluster(api_server: ApiServer, kube: KubeClient, namespace: str) -> str:
    """The sample in a namespace of its own, its status written as the operator writes it; returns the namespace."""
    body = yaml.safe_load(SAMPLE.read_text())
    body["metadata"] = {"name": "assistant", "namespace": namespace}
    status = body.pop("status")
    stored = InferenceSLO.parse(kube.create(INFERENCE_SLOS, body))
    done = api_server.kubectl(
        "-n", namespace, "patch", "islo", stored.name, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return namespace


def test_top_shows_one_namespace_or_all(
    slo: Slo, in_cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slo("top", "-n", in_cluster) == 1
    assert f"{in_cluster}/assistant" in capsys.readouterr().out
    assert slo("top", "--all-namespaces", "-o", "json") == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["model"] for row in rows if row["namespace"] == in_cluster} == {
        "assistant-small",
        "assistant-large",
    }


def test_explain_and_history_read_the_stored_status(
    slo: Slo, in_cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slo("explain", f"{in_cluster}/assistant") == 1
    told = capsys.readouterr().out
    assert "bottleneck: PreprocessStarved" in told
    assert "591ms of the p99 are spent outside the GPU" in told
    assert slo("history", "assistant", "-n", in_cluster, "-o", "yaml") == 0
    assert [decision["reason"] for decision in yaml.safe_load(capsys.readouterr().out)] == [
        "CanaryRestored",
        "CanaryStarted",
    ]


def test_a_name_that_is_not_there_is_said_with_its_namespace(
    slo: Slo, in_cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slo("explain", "other", "-n", in_cluster) == 2
    assert f"no InferenceSLO 'other' in namespace {in_cluster}" in capsys.readouterr().err


def test_a_namespace_without_resources_leads_to_the_others(
    slo: Slo, in_cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slo("top", "-n", "default") == 2
    assert "no InferenceSLO in namespace default; -A looks in every namespace" in capsys.readouterr().err
