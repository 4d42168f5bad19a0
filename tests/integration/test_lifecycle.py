"""Samples, ownership, status and deletion on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from slo_operator.api.names import FIELD_MANAGER
from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import (
    BottleneckStatus,
    BreakdownStatus,
    ChangeStatus,
    Condition,
    ConditionStatus,
    DecisionStatus,
    InferenceSLOStatus,
    LeverStatus,
    ModelSettingsStatus,
    ModelStatus,
    ObjectiveStatus,
    RecommendationStatus,
    ServerStatus,
    StageStatus,
    Summary,
    timestamp,
)
from slo_operator.kube import CHILD_RESOURCES, DEPLOYMENTS, INFERENCE_SLOS, KubeClient, KubeError
from slo_operator.render.context import ServerContext
from slo_operator.render.objects import new_admin_key, server_objects
from slo_tuner.settings import Batching, ModelSettings
from tests.integration.apiserver import ApiServer
from tests.integration.conftest import eventually
from tests.integration.resources import resource

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
NOW = 1_796_078_124.0


@pytest.fixture
def stored(kube: KubeClient, namespace: str) -> InferenceSLO:
    """A resource as a person applied it."""
    return InferenceSLO.parse(kube.create(INFERENCE_SLOS, resource(namespace)))


@pytest.fixture
def children(stored: InferenceSLO) -> list[dict[str, Any]]:
    server = stored.spec.servers[0]
    context = ServerContext(
        namespace=stored.namespace,
        resource=stored.name,
        uid=stored.uid,
        server=server,
        pool=stored.spec.pool(server.pool),
        replicas=2,
        overlay_image="operator:1",
        trace_url="http://operator:4318/v1/traces",
    )
    return server_objects(context, new_admin_key(), {"m": ModelSettings(2, 8, Batching(5000, (4, 8)))})


@pytest.fixture(scope="session")
def serving(api_server: ApiServer) -> ApiServer:
    done = api_server.kubectl("apply", "-f", str(ROOT / "manifests" / "samples" / "namespace.yaml"))
    assert done.returncode == 0, done.stderr
    return api_server


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_applies_strictly_and_is_read_by_the_operator(sample: Path, serving: ApiServer) -> None:
    done = serving.kubectl("apply", "--validate=strict", "--dry-run=server", "-o", "yaml", "-f", str(sample))
    assert done.returncode == 0, done.stderr
    body = yaml.safe_load(done.stdout)
    if body["kind"] == "InferenceSLO":
        InferenceSLO.parse(body)


def test_the_manifests_apply_strictly_as_a_whole(api_server: ApiServer) -> None:
    for folder in ("base", "dev"):
        done = api_server.kubectl(
            "apply", "--server-side", "--validate=strict", "-k", str(ROOT / "manifests" / folder)
        )
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr


def test_children_apply_without_a_warning_under_the_restricted_pod_security_level(
    children: list[dict[str, Any]], api_server: ApiServer, namespace: str
) -> None:
    done = api_server.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted")
    assert done.returncode == 0, done.stderr
    text = yaml.safe_dump_all(children)
    done = api_server.kubectl(
        "apply",
        "--server-side",
        f"--field-manager={FIELD_MANAGER}",
        "--validate=strict",
        "-f",
        "-",
        text=text,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr


def test_applying_children_again_writes_nothing(children: list[dict[str, Any]], kube: KubeClient) -> None:
    first = [kube.apply(CHILD_RESOURCES[child["kind"]], child) for child in children]
    again = [kube.apply(CHILD_RESOURCES[child["kind"]], child) for child in children]
    assert [o["metadata"]["resourceVersion"] for o in again] == [
        o["metadata"]["resourceVersion"] for o in first
    ]


def test_a_foreign_manager_gets_a_conflict_that_names_field_and_owner_and_we_get_ours_back(
    children: list[dict[str, Any]], kube: KubeClient, api_server: ApiServer
) -> None:
    deployment = children[-1]
    kube.apply(DEPLOYMENTS, deployment)
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {k: deployment["metadata"][k] for k in ("name", "namespace")},
        "spec": {"replicas": 7},
    }
    text = yaml.safe_dump(foreign)
    done = api_server.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", text=text)
    assert done.returncode != 0
    assert f'conflict with "{FIELD_MANAGER}"' in done.stderr
    assert ".spec.replicas" in done.stderr

    done = api_server.kubectl(
        "apply", "--server-side", "--field-manager=gitops", "--force-conflicts", "-f", "-", text=text
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(KubeError) as error:
        kube.apply(DEPLOYMENTS, deployment)
    assert error.value.conflict
    assert error.value.causes[0][0] == ".spec.replicas"
    assert '"gitops"' in error.value.causes[0][1]

    repaired = kube.apply(DEPLOYMENTS, deployment, force=True)
    assert repaired["spec"]["replicas"] == 2


def test_nothing_of_a_full_status_is_pruned(stored: InferenceSLO, kube: KubeClient) -> None:
    status = full_status(stored.generation).to_json()
    body = {
        "apiVersion": INFERENCE_SLOS.api_version,
        "kind": INFERENCE_SLOS.kind,
        "metadata": {"name": stored.name, "namespace": stored.namespace},
        "status": status,
    }
    written = kube.apply(INFERENCE_SLOS, body, subresource="status")
    assert written["status"] == status
    assert written["metadata"]["generation"] == stored.generation
    assert InferenceSLO.parse(written).status == full_status(stored.generation)
    again = kube.apply(INFERENCE_SLOS, body, subresource="status")
    assert again["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]


def test_the_columns_tell_the_story(stored: InferenceSLO, kube: KubeClient, api_server: ApiServer) -> None:
    body = {
        "apiVersion": INFERENCE_SLOS.api_version,
        "kind": INFERENCE_SLOS.kind,
        "metadata": {"name": stored.name, "namespace": stored.namespace},
        "status": full_status(stored.generation).to_json(),
    }
    kube.apply(INFERENCE_SLOS, body, subresource="status")
    head, row = api_server.kubectl("get", "islo", "-n", stored.namespace).stdout.splitlines()
    assert head.split() == ["NAME", "MODE", "SLO", "MET", "P99", "BOTTLENECK", "GPUS", "AGE"]
    assert row.split()[:6] == ["assistant", "Observe", "False", "712ms/300ms", "PreprocessStarved", "4"]


def test_status_cannot_be_changed_by_writing_the_resource(
    stored: InferenceSLO, kube: KubeClient, api_server: ApiServer
) -> None:
    body = resource(stored.namespace)
    body["status"] = {"observedGeneration": 99}
    done = api_server.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", text=yaml.safe_dump(body)
    )
    assert done.returncode == 0, done.stderr
    assert "status" not in kube.get(INFERENCE_SLOS, stored.namespace, stored.name)


def test_children_go_with_the_resource_and_nothing_hangs(
    stored: InferenceSLO, children: list[dict[str, Any]], kube: KubeClient, api_server: ApiServer
) -> None:
    for child in children:
        kube.apply(CHILD_RESOURCES[child["kind"]], child)
    done = api_server.kubectl("delete", "islo", stored.name, "-n", stored.namespace, "--timeout=30s")
    assert done.returncode == 0, done.stderr

    def gone(child: dict[str, Any]) -> bool:
        try:
            kube.get(CHILD_RESOURCES[child["kind"]], stored.namespace, child["metadata"]["name"])
        except KubeError as error:
            return error.not_found
        return False

    for child in children:
        eventually(f"{child['kind']} {child['metadata']['name']} gone", lambda child=child: gone(child))


def test_a_namespace_with_resources_goes_while_no_operator_runs(
    stored: InferenceSLO, children: list[dict[str, Any]], kube: KubeClient, api_client: client.ApiClient
) -> None:
    for child in children:
        kube.apply(CHILD_RESOURCES[child["kind"]], child)
    core = client.CoreV1Api(api_client)
    core.delete_namespace(stored.namespace)
    eventually(
        "the namespace gone",
        lambda: stored.namespace not in {item["metadata"]["name"] for item in _namespaces(api_client)},
    )


def _namespaces(api: client.ApiClient) -> list[dict[str, Any]]:
    return [api.sanitize_for_serialization(item) for item in client.CoreV1Api(api).list_namespace().items]


def full_status(generation: int) -> InferenceSLOStatus:
    """A status in which every field has a value."""
    at = timestamp(NOW)
    settings = [
        ModelSettingsStatus(
            model="preprocessing",
            instances=4,
            max_batch_size=16,
            queue_delay="5ms",
            preferred_sizes=[4, 8],
            pods="1/2",
        )
    ]
    decision = DecisionStatus(
        time=at,
        server="chat",
        reason="CanaryStarted",
        message="1 → 4",
        lever="preprocess",
        evidence={"busy": 0.97},
    )
    return InferenceSLOStatus(
        observed_generation=generation,
        summary=Summary(p99="712ms/300ms", bottleneck="PreprocessStarved", gpus=4),
        conditions=[
            Condition(
                type="SLOMet",
                status=ConditionStatus.FALSE,
                reason="Missed",
                message="m: p99 712ms, target 300ms",
                last_transition_time=at,
                observed_generation=generation,
            )
        ],
        servers=[
            ServerStatus(
                name="chat",
                replicas=2,
                ready_replicas=2,
                gpus=4,
                config_hash="301b1967e7dc",
                rollout="Complete",
                message="as declared",
                change=ChangeStatus(
                    lever="preprocess",
                    phase="Analyse",
                    since=at,
                    pods=["p-1"],
                    settings=settings,
                    message="n=310",
                ),
            )
        ],
        models=[
            ModelStatus(
                server="chat",
                name="m",
                slo=[
                    ObjectiveStatus(
                        objective="latency.p99",
                        target="300ms",
                        observed="712ms",
                        attainment="91.20%",
                        interval="90.10%–92.20%",
                        requests=2400,
                        source="traces",
                        met=ConditionStatus.FALSE,
                        reason="Missed",
                        message="p99 712ms",
                    )
                ],
                breakdown=BreakdownStatus(
                    mean="240ms",
                    rate="40.0/s",
                    forward_p99="125ms",
                    outside_gpu="587ms",
                    stages=[
                        StageStatus(stage="preprocess", model="preprocessing", time="30ms", share="12.50%")
                    ],
                ),
                bottleneck=BottleneckStatus(
                    reason="PreprocessStarved",
                    model="preprocessing",
                    message="busy 97 %",
                    evidence={"busy": 0.97},
                ),
                settings=settings,
                recommendation=RecommendationStatus(
                    lever="preprocess",
                    message="4 processes",
                    settings=settings,
                    replicas=2,
                    predicted="270ms",
                ),
                levers=[LeverStatus(lever="mig", verdict="Ineligible", why="not indicated", predicted="-")],
            )
        ],
        last_decision=decision,
        history=[decision],
    )
