"""The objects beside the Deployment."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slo_operator.config import parse_config
from slo_operator.render.context import ServerContext, child_names
from slo_operator.render.objects import (
    admin_key_of,
    control_secret,
    disruption_budget,
    network_policy,
    new_admin_key,
    server_objects,
    services,
    state_config_map,
    tuned_config_map,
)
from slo_tuner.settings import Batching, ModelSettings

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"


def test_children_are_called_what_the_documentation_says() -> None:
    names = child_names("assistant", "chat")
    assert (names.deployment, names.service, names.headless) == (
        "assistant-chat",
        "assistant-chat",
        "assistant-chat-headless",
    )
    assert (names.secret, names.tuned, names.state) == (
        "assistant-chat-control",
        "assistant-chat-tuned",
        "assistant-chat-state",
    )


def test_what_a_pod_needs_is_applied_before_it(context: ServerContext) -> None:
    kinds = [o["kind"] for o in server_objects(context, new_admin_key(), {})]
    assert kinds == [
        "Secret",
        "ConfigMap",
        "Service",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "Deployment",
    ]


def test_a_key_is_made_once_and_then_kept(context: ServerContext) -> None:
    key = new_admin_key()
    assert new_admin_key() != key
    secret = control_secret(context, key)
    assert admin_key_of(secret) == key
    assert control_secret(context, key) == secret


@pytest.mark.parametrize(
    "data",
    [None, {}, {"admin-key": ""}, {"admin-key": "not base64!"}, {"admin-key": base64.b64encode(b"short").decode()}, {"admin-key": base64.b64encode(b"a:b," * 16).decode()}],
)  # fmt: skip
def test_a_secret_without_a_usable_key_needs_a_new_one(data: dict[str, str] | None) -> None:
    assert admin_key_of({"data": data}) is None
    assert admin_key_of(None) is None


def test_tuned_settings_are_written_as_pods_read_them(context: ServerContext) -> None:
    built = tuned_config_map(
        context, {"m": ModelSettings(4, 16, Batching(5000, (4, 8))), "a": ModelSettings(1, 0)}
    )
    assert json.loads(built["data"]["settings.json"]) == {
        "m": {
            "instances": 4,
            "max_batch_size": 16,
            "batching": {"delay_us": 5000, "preferred_sizes": [4, 8]},
        },
        "a": {"instances": 1, "max_batch_size": 0, "batching": None},
    }
    assert built["metadata"]["name"] == "assistant-chat-tuned"


def test_what_the_loop_remembers_has_a_place_of_its_own(context: ServerContext) -> None:
    built = state_config_map(context, '{"version": 1}')
    assert built["metadata"]["name"] == "assistant-chat-state"
    assert built["data"] == {"memory.json": '{"version": 1}'}


def test_one_service_balances_connections_and_one_shows_the_pods(context: ServerContext) -> None:
    cluster_ip, headless = services(context)
    assert "clusterIP" not in cluster_ip["spec"]
    assert headless["spec"]["clusterIP"] == "None"
    for service in (cluster_ip, headless):
        assert service["spec"]["selector"] == {
            "inferenceslo.dev/resource": "assistant",
            "inferenceslo.dev/server": "chat",
        }
        assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [
            ("http", 8000),
            ("grpc", 8001),
            ("metrics", 8002),
        ]


def test_drains_take_one_pod_at_a_time_and_are_not_held_up_by_broken_ones(context: ServerContext) -> None:
    spec = disruption_budget(context)["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_inference_is_for_clients_and_metrics_for_all(context: ServerContext) -> None:
    inference, metrics = network_policy(context)["spec"]["ingress"]
    assert [p["port"] for p in inference["ports"]] == [8000, 8001]
    assert {"podSelector": {}} in inference["from"]
    assert {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "inferenceslo-system"}}
    } in inference["from"]
    assert metrics == {"ports": [{"protocol": "TCP", "port": 8002}]}


def load(path: str) -> list[dict[str, Any]]:
    return [d for d in yaml.safe_load_all((MANIFESTS / path).read_text()) if d]


@pytest.mark.parametrize(
    ("config", "image"), [("base/config.yaml", None), ("dev/config.yaml", "inferenceslo/operator:dev")]
)
def test_the_shipped_configuration_is_read_and_names_the_operators_own_image(
    config: str, image: str | None
) -> None:
    parsed = parse_config(yaml.safe_load(load(config)[0]["data"]["config.yaml"]), config)
    deployed = load("base/deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert parsed.overlay_image == (image or deployed)


def test_a_development_cluster_gets_the_image_that_was_built_there() -> None:
    images = load("dev/kustomization.yaml")[0]["images"]
    assert images == [{"name": "inferenceslo/operator", "newTag": "dev"}]


@pytest.mark.parametrize("path", ["gitops/flux.yaml", "gitops/argocd.yaml"])
def test_delivery_samples_are_objects(path: str) -> None:
    assert all({"apiVersion", "kind", "metadata"} <= document.keys() for document in load(path))
