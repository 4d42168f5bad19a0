"""What the operator's service account may do: all that it needs, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from slo_operator.kube import (
    CHILD_RESOURCES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_SLOS,
    NODES,
    PODS,
    SECRETS,
    KubeClient,
    KubeError,
    Resource,
)
from tests.integration.apiserver import ApiServer
from tests.integration.resources import resource

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
ACCOUNT = "system:serviceaccount:inferenceslo-system:inferenceslo-operator"


@pytest.fixture(scope="module")
def operator(api_server: ApiServer) -> KubeClient:
    """A client with the rights of the operator's service account."""
    done = api_server.kubectl("apply", "--server-side", "-k", str(BASE))
    assert done.returncode == 0, done.stderr
    connection: Any = api_server.client()
    connection.set_default_header("Impersonate-User", ACCOUNT)
    return KubeClient(connection)


def plain(kind: Resource, namespace: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "x", "namespace": namespace},
        **fields,
    }


@pytest.mark.parametrize(
    "kind", [PODS, NODES, INFERENCE_SLOS, DEPLOYMENTS, CONFIG_MAPS], ids=lambda r: r.plural
)
def test_what_is_observed_can_be_listed(kind: Resource, operator: KubeClient) -> None:
    assert all("items" in page for page in operator.list_pages(kind))


def test_children_status_and_events_can_be_written(
    operator: KubeClient, kube: KubeClient, namespace: str
) -> None:
    stored = kube.create(INFERENCE_SLOS, resource(namespace))
    children = _children(stored)
    for child in children:
        operator.apply(CHILD_RESOURCES[child["kind"]], child, force=True)
    status = plain(INFERENCE_SLOS, namespace, status={"observedGeneration": 1})
    status["metadata"]["name"] = stored["metadata"]["name"]
    operator.apply(INFERENCE_SLOS, status, subresource="status")
    operator.create(
        EVENTS,
        plain(
            EVENTS,
            namespace,
            eventTime="2026-11-30T22:00:00.000000Z",
            reportingController="inferenceslo.dev/operator",
            reportingInstance="x",
            action="Decide",
            reason="Waiting",
            type="Normal",
            regarding={"kind": "InferenceSLO", "name": "assistant", "namespace": namespace},
        ),
    )


def test_the_spec_can_not_be_written(operator: KubeClient, kube: KubeClient, namespace: str) -> None:
    kube.create(INFERENCE_SLOS, resource(namespace))
    with pytest.raises(KubeError) as error:
        operator.apply(INFERENCE_SLOS, resource(namespace), force=True)
    assert error.value.status == 403


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("list", "secrets"),
        ("create", "pods"),
        ("patch", "nodes"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
        ("create", "serviceaccounts"),
        ("delete", "inferenceslos.inferenceslo.dev"),
        ("delete", "namespaces"),
        ("create", "pods/exec"),
    ],
)
def test_what_it_does_not_need_it_may_not(
    verb: str, what: str, operator: KubeClient, api_server: ApiServer
) -> None:
    done = api_server.kubectl("auth", "can-i", verb, what, f"--as={ACCOUNT}", "--all-namespaces")
    assert done.stdout.strip() == "no", done.stderr


def test_a_secret_can_be_read_by_its_name(operator: KubeClient, namespace: str) -> None:
    operator.apply(SECRETS, plain(SECRETS, namespace, data={"admin-key": "eA=="}))
    assert operator.get(SECRETS, namespace, "x")["data"] == {"admin-key": "eA=="}


def test_editors_of_a_namespace_may_edit_its_resources(
    operator: KubeClient, api_client: client.ApiClient
) -> None:
    role: Any = client.RbacAuthorizationV1Api(api_client).read_cluster_role("inferenceslo-edit")
    assert role.metadata.labels["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"


def _children(stored: dict[str, Any]) -> list[dict[str, Any]]:
    from slo_operator.api.resource import InferenceSLO
    from slo_operator.render.context import ServerContext
    from slo_operator.render.objects import new_admin_key, server_objects, state_config_map

    parsed = InferenceSLO.parse(stored)
    server = parsed.spec.servers[0]
    context = ServerContext(
        parsed.namespace,
        parsed.name,
        parsed.uid,
        server,
        parsed.spec.pools[0],
        replicas=1,
        overlay_image="operator:1",
    )
    return [*server_objects(context, new_admin_key(), {}), state_config_map(context, "{}")]
