"""The Deployment of a server: what pods get, and what replaces them."""

from __future__ import annotations

from typing import Any

import pytest

from slo_operator.api.names import ANNOTATION_CONFIG_HASH
from slo_operator.render.context import Observed, ServerContext
from slo_operator.render.deployment import config_hash, deployment, rollout_is_due
from slo_operator.render.pod import shared_memory_mib
from tests.unit.render.conftest import SERVER, make_context


def pod(built: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = built["spec"]["template"]["spec"]
    return spec


def container(built: dict[str, Any], name: str = "triton") -> dict[str, Any]:
    return next(c for c in (*pod(built)["containers"], *pod(built)["initContainers"]) if c["name"] == name)


def test_names_labels_and_owner_are_those_that_others_look_for(context: ServerContext) -> None:
    built = deployment(context)
    assert built["metadata"]["name"] == "assistant-chat"
    assert built["metadata"]["namespace"] == "serving"
    assert built["metadata"]["labels"] == {
        "app.kubernetes.io/name": "triton",
        "app.kubernetes.io/managed-by": "inferenceslo-operator",
        "inferenceslo.dev/resource": "assistant",
        "inferenceslo.dev/server": "chat",
    }
    assert built["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert (
        built["spec"]["selector"]["matchLabels"].items()
        <= built["spec"]["template"]["metadata"]["labels"].items()
    )
    assert built["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == "8002"


def test_the_server_is_started_with_control_closed_and_traces_off(context: ServerContext) -> None:
    arguments = container(deployment(context))["args"]
    closed = "model-repository,model-config,trace,logging:admin-key=$(ADMIN_KEY)"
    assert f"--grpc-restricted-protocol={closed}" in arguments
    assert f"--http-restricted-api={closed}" in arguments
    assert "--trace-config=level=OFF" in arguments
    assert "--trace-config=opentelemetry,url=http://operator:4318/v1/traces" in arguments
    assert "--model-control-mode=explicit" in arguments
    assert "--exit-on-error=true" in arguments
    key = next(e for e in container(deployment(context))["env"] if e["name"] == "ADMIN_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": "assistant-chat-control", "key": "admin-key"}


def test_the_repository_is_read_and_never_written(context: ServerContext) -> None:
    built = deployment(context)
    volume = next(v for v in pod(built)["volumes"] if v["name"] == "repository")
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    for name in ("overlay", "triton"):
        mount = next(m for m in container(built, name)["volumeMounts"] if m["name"] == "repository")
        assert mount["readOnly"]
    assert container(built, "overlay")["command"][-1] == "/repository/chat"
    assert container(built, "overlay")["image"] == "triton:1"


def test_a_repository_in_the_image_needs_no_volume() -> None:
    built = deployment(make_context(repository={"path": "/models"}))
    assert all(v["name"] != "repository" for v in pod(built)["volumes"])
    assert container(built, "overlay")["command"][-1] == "/models"


def test_pods_run_restricted_and_without_a_token(context: ServerContext) -> None:
    spec = pod(deployment(context))
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*spec["containers"], *spec["initContainers"]):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_gpus_and_nodes_are_the_pools(context: ServerContext) -> None:
    built = deployment(context)
    assert container(built)["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert pod(built)["nodeSelector"] == {"gpu": "a100"}
    assert "resources" not in container(deployment(make_context(accelerator={"gpus": 0})))


def test_shared_memory_has_room_for_the_largest_settings(context: ServerContext) -> None:
    # tok and detok 32 that wait for a pool, fwd 4 per GPU on 2 GPUs: (32 + 4 × 2 + 32) × 64 MiB
    assert shared_memory_mib(context.server) == 72 * 64
    volume = next(v for v in pod(deployment(context))["volumes"] if v["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "4608Mi"}


def test_a_shared_stage_counts_once() -> None:
    two = [SERVER["models"][0], {**SERVER["models"][0], "name": "second"}]
    assert shared_memory_mib(make_context(models=two).server) == 72 * 64


def test_the_template_is_merged_and_selecting_labels_stay() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "serviceAccountName": "llm",
            "containers": [
                {"name": "triton", "args": ["--log-verbose=1"], "resources": {"limits": {"cpu": "8"}}}
            ],
        },
    }
    built = deployment(make_context(template=template))
    assert built["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    assert built["spec"]["template"]["metadata"]["labels"]["inferenceslo.dev/server"] == "chat"
    assert pod(built)["serviceAccountName"] == "llm"
    assert container(built)["args"][-1] == "--log-verbose=1"
    assert container(built)["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "8"}


@pytest.mark.parametrize(("gpu_free", "surge", "unavailable"), [(True, 1, 0), (False, 0, 1)])
def test_a_new_pod_comes_first_only_when_it_finds_a_gpu(gpu_free: bool, surge: int, unavailable: int) -> None:
    strategy = deployment(make_context(gpu_free=gpu_free))["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": surge, "maxUnavailable": unavailable}


@pytest.mark.parametrize(
    ("p99_s", "grace_s"),
    [
        (None, 60),  # 10 pre-stop + 30 drain + 5, up to half minutes
        (0.7, 60),
        (75.0, 240),  # 10 + 3 × 75 + 5 = 240
        (80.0, 270),
    ],
)
def test_the_grace_period_outlasts_the_longest_answers(p99_s: float | None, grace_s: int) -> None:
    built = deployment(make_context(observed=Observed(p99_s=p99_s)))
    assert pod(built)["terminationGracePeriodSeconds"] == grace_s
    arguments = container(built)["args"]
    assert f"--exit-timeout-secs={grace_s - 15}" in arguments
    assert f"--grpc-max-connection-age-grace={grace_s * 1000}" in arguments
    assert container(built)["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}


@pytest.mark.parametrize(("load_s", "seconds"), [(None, 600), (20.0, 600), (400.0, 1200)])
def test_a_start_may_take_three_times_the_longest_seen(load_s: float | None, seconds: int) -> None:
    probe = container(deployment(make_context(observed=Observed(load_s=load_s))))["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == seconds
    assert probe["httpGet"]["path"] == "/v2/health/live"


def test_what_was_observed_waits_for_a_rollout_that_is_due_anyway() -> None:
    live = deployment(make_context())
    later = make_context(observed=Observed(p99_s=75.0, load_s=900.0), overlay_image="operator:2")
    assert deployment(later, live) == live
    assert not rollout_is_due(later, live)

    changed = make_context(observed=Observed(p99_s=75.0), overlay_image="operator:2", image="triton:2")
    assert rollout_is_due(changed, live)
    built = deployment(changed, live)
    assert pod(built)["terminationGracePeriodSeconds"] == 240
    assert container(built, "tuned")["image"] == "operator:2"


def test_a_hand_edited_grace_period_is_put_right() -> None:
    live = deployment(make_context())
    pod(live)["terminationGracePeriodSeconds"] = 5
    assert pod(deployment(make_context(), live))["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize(
    "kept", ["", "{}", "[]", '{"grace_s": "x"}', '{"overlay_image": "a", "grace_s": 1, "start_s": 1}']
)
def test_a_note_that_cannot_be_used_is_written_anew(kept: str) -> None:
    live = deployment(make_context())
    wanted = deployment(make_context())
    live["metadata"]["annotations"]["inferenceslo.dev/kept"] = kept
    assert deployment(make_context(), live) == wanted


def test_the_hash_moves_with_what_people_decide_and_with_nothing_else() -> None:
    first = config_hash(make_context())
    same = [
        make_context(replicas=4),
        make_context(gpu_free=True),
        make_context(observed=Observed(p99_s=9.0, load_s=9.0)),
        make_context(overlay_image="operator:2"),
        make_context(replicas=3),
    ]
    assert {config_hash(c) for c in same} == {first}
    different = [
        make_context(image="triton:2"),
        make_context(accelerator={"gpus": 1}),
        make_context(repository={"path": "/models"}),
        make_context(template={"spec": {"priorityClassName": "p"}}),
    ]
    assert len({config_hash(c) for c in different} | {first}) == 5
    built = deployment(make_context())
    assert built["metadata"]["annotations"][ANNOTATION_CONFIG_HASH] == first
    assert built["spec"]["template"]["metadata"]["annotations"][ANNOTATION_CONFIG_HASH] == first
