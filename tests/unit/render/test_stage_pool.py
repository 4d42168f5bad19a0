"""A pool of servers without GPUs: what is rendered for it, and what it changes in the server's own pods."""

from __future__ import annotations

import json
from typing import Any

from slo_operator.api import names
from slo_operator.render.deployment import config_hash, deployment
from slo_operator.render.objects import network_policy, services
from slo_operator.render.stage_pool import PoolContext, pool_objects
from slo_tuner.settings import Batching, ModelSettings
from tests.unit.render.conftest import make_context

DECLARED = {
    "maxReplicas": 6,
    "nodeSelector": {"pool": "cpu"},
    "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "4", "memory": "8Gi"}},
}
HELD = {"requests": {"cpu": "500m", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}


def pool(replicas: int = 3, **server: Any) -> dict[str, dict[str, Any]]:
    """The pool's objects by kind."""
    context = make_context(preprocessPool=DECLARED, **server)
    declared = context.server.preprocess_pool
    assert declared is not None
    stages = {"tok": ModelSettings(1, 16, Batching(1000))}
    return {o["kind"]: o for o in pool_objects(PoolContext(context, declared, replicas, stages))}


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (found,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value") for c in pod["containers"] for e in c["env"]}


def test_its_pods_load_the_stages_only_and_hold_no_gpu() -> None:
    found = container(pool())
    loaded = [a for a in found["args"] if a.startswith("--load-model")]
    assert loaded == ["--load-model=tok"]
    assert found["resources"] == HELD
    spec = pool()["Deployment"]["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["nodeSelector"] == {"pool": "cpu"}


def test_a_stage_runs_a_process_for_each_core_and_takes_the_servers_batches() -> None:
    settings = json.loads(pool()["ConfigMap"]["data"][names.SETTINGS_KEY])
    assert settings == {"tok": {"instances": 4, "max_batch_size": 16, "batching": None}}
    volumes = {v["name"]: v for v in pool()["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["tuned"]["configMap"]["name"] == "assistant-chat-pool-tuned"


def test_pods_are_replaced_when_their_settings_change_and_not_when_replicas_do() -> None:
    one, more = pool(1)["Deployment"]["spec"], pool(5)["Deployment"]["spec"]
    assert one["template"] == more["template"]
    context = make_context(preprocessPool=DECLARED)
    assert context.server.preprocess_pool is not None
    other = pool_objects(
        PoolContext(context, context.server.preprocess_pool, 1, {"tok": ModelSettings(1, 32)})
    )
    assert other[-1]["spec"]["template"] != one["template"]


def test_its_labels_are_not_the_servers_so_that_clients_and_budgets_never_meet_it() -> None:
    context = make_context(preprocessPool=DECLARED)
    labels = pool()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        context.selector,
        *(s["spec"]["selector"] for s in services(context)),
        network_policy(context)["spec"]["podSelector"]["matchLabels"],
    ):
        assert not selector.items() <= labels.items()
    for kind in ("Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"):
        assert pool()[kind]["metadata"]["labels"][names.LABEL_SERVER] == "chat-pool"
        assert pool()[kind]["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_only_the_servers_pods_may_ask_it() -> None:
    ingress = pool()["NetworkPolicy"]["spec"]["ingress"]
    assert ingress[0]["from"] == [{"podSelector": {"matchLabels": make_context().selector}}]
    assert [p["port"] for p in ingress[0]["ports"]] == [8000]


def test_its_service_is_headless_since_servers_choose_among_the_pods() -> None:
    service = pool()["Service"]
    assert service["metadata"]["name"] == "assistant-chat-pool"
    assert service["spec"]["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in service["spec"]


def test_the_servers_template_counts_for_it_but_for_place_and_size() -> None:
    template = {
        "spec": {
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "nodeSelector": {"gpu": "a100"},
            "containers": [
                {
                    "name": "triton",
                    "env": [{"name": "TOKENS", "value": "1"}],
                    "resources": {"limits": {"cpu": "16"}},
                }
            ],
        }
    }
    objects = pool(template=template)
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"key": "x", "operator": "Exists"}]
    assert pod["nodeSelector"] == {"pool": "cpu"}
    assert variables(pod)["TOKENS"] == "1"
    assert container(objects)["resources"] == HELD


def test_a_server_knows_where_a_pool_would_be_so_that_declaring_one_restarts_nothing() -> None:
    without, declared = (make_context(preprocessPool=pool) for pool in (None, DECLARED))
    pod = deployment(without)["spec"]["template"]["spec"]
    assert variables(pod)["INFERENCESLO_POOL"] == "assistant-chat-pool.serving.svc:8000"
    (tuned,) = [c for c in pod["initContainers"] if c["name"] == "tuned"]
    assert "--movable" in tuned["command"]
    assert config_hash(without) == config_hash(declared)


def test_another_image_may_compute_the_stages() -> None:
    context = make_context(preprocessPool=DECLARED | {"image": "tokenizer:2"})
    assert context.server.preprocess_pool is not None
    objects = pool_objects(
        PoolContext(context, context.server.preprocess_pool, 1, {"tok": ModelSettings(1, 8)})
    )
    pod = objects[-1]["spec"]["template"]["spec"]
    assert [c["image"] for c in pod["containers"]] == ["tokenizer:2"]
    assert pod["initContainers"][0]["image"] == "tokenizer:2"
