"""Whose objects are whose: children, hand edits, what others own, and servers that are only watched."""

from __future__ import annotations

import copy

from slo_operator.kube import KubeError
from tests.unit.operator.fakes import UID, FakeTriton, pod, resource
from tests.unit.operator.world import World, running


def test_the_first_tick_creates_every_child_with_the_resource_as_owner() -> None:
    world = World()
    world.step()
    children = {
        ("Deployment", "assistant-chat"),
        ("Service", "assistant-chat"),
        ("Service", "assistant-chat-headless"),
        ("Secret", "assistant-chat-control"),
        ("ConfigMap", "assistant-chat-tuned"),
        ("ConfigMap", "assistant-chat-state"),
        ("PodDisruptionBudget", "assistant-chat"),
        ("NetworkPolicy", "assistant-chat"),
    }
    for kind, name in children:
        (owner,) = world.child(kind, name)["metadata"]["ownerReferences"]
        assert owner["uid"] == UID
        assert "finalizers" not in world.child(kind, name)["metadata"]
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Reconciling")["status"] == "True"


def test_suspending_leaves_a_hand_edited_child_alone() -> None:
    world = running()
    world.body["spec"]["suspend"] = True
    world.body["metadata"]["generation"] = 2
    world.kube.edit("Deployment", "serving", "assistant-chat", ("spec", "replicas"), 1)
    world.step(ticks=3)
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 1
    del world.body["spec"]["suspend"]
    world.step()
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2


def test_a_hand_edited_deployment_is_repaired_once_with_an_event() -> None:
    world = running()
    world.kube.edit("Deployment", "serving", "assistant-chat", ("spec", "replicas"), 1)
    world.step(ticks=3)
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2
    (event,) = [e for e in world.kube.events if e["reason"] == "Repaired"]
    assert ".spec.replicas" in event["note"]
    assert "kubectl-edit" in event["note"]


def test_a_field_reset_three_times_is_contested_and_then_left_alone() -> None:
    world = running()
    for _ in range(3):
        world.kube.edit("Deployment", "serving", "assistant-chat", ("spec", "replicas"), 1)
        world.step()
    world.kube.edit("Deployment", "serving", "assistant-chat", ("spec", "replicas"), 1)
    world.step(ticks=5)
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 1
    condition = world.condition("FieldContested")
    assert condition["status"] == "True"
    assert "kubectl-edit" in condition["message"]
    world.step(seconds=601)
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2


def test_a_deployment_of_somebody_else_is_never_touched() -> None:
    world = World()
    foreign = {
        "kind": "Deployment",
        "metadata": {"name": "assistant-chat", "namespace": "serving"},
        "spec": {"replicas": 7, "selector": {"matchLabels": {"app": "theirs"}}},
    }
    world.kube.put(copy.deepcopy(foreign))
    world.step(ticks=2)
    assert world.child("Deployment", "assistant-chat")["spec"] == foreign["spec"]
    stalled = world.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "CannotApply")
    assert "does not belong to this resource" in stalled["message"]


def test_an_api_server_that_refuses_a_child_shows_in_the_condition() -> None:
    world = World()
    world.kube.refuse["Deployment"] = KubeError(422, "Invalid", "spec.template: no")
    world.step()
    assert world.condition("Stalled")["status"] == "True"
    assert "spec.template: no" in world.condition("Stalled")["message"]


def test_a_target_is_observed_and_advised_on_and_never_written() -> None:
    source = running()
    deployment = copy.deepcopy(source.child("Deployment", "assistant-chat"))
    body = resource("Auto")
    server = body["spec"]["servers"][0]
    del server["image"], server["repository"]
    server["target"] = {"deployment": "triton"}
    world = World(body)
    deployment["metadata"] = {"name": "triton", "namespace": "serving", "labels": {}, "generation": 1}
    world.kube.put(deployment)
    for i in range(2):
        name = f"triton-{i}"
        world.kube.put(pod(deployment, name, f"10.0.1.{i}"))
        world.tritons[name] = FakeTriton()
    world.serve()
    world.traced = True
    world.slow_share = dict.fromkeys(world.tritons, 0.1)
    world.step(ticks=10)
    assert {w[0] for w in world.kube.writes} == {"status"}
    assert all(t.loads == [] and t.tracing["trace_level"] == ["OFF"] for t in world.tritons.values())
    assert world.status["models"][0]["bottleneck"] is not None
    assert world.condition("ControlExposed")["status"] == "True"


def test_a_server_that_leaves_the_spec_takes_its_children_along() -> None:
    world = running()
    world.body["spec"]["servers"][0]["name"] = "talk"
    world.body["metadata"]["generation"] = 2
    world.step(ticks=2)
    names = {name for kind, _, name in world.kube.objects if kind == "Deployment"}
    assert names == {"assistant-talk"}
    assert ("Secret", "serving", "assistant-chat-control") not in world.kube.objects
