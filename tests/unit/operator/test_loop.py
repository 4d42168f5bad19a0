"""The whole loop over a small cluster: what it writes, when it holds, how it comes back."""

from __future__ import annotations

from tests.unit.operator.world import World


def running(**kwargs: object) -> World:
    world = World(**kwargs)  # type: ignore[arg-type]
    world.step()
    world.roll_out()
    world.serve()
    world.step(ticks=3)
    return world


def test_the_first_tick_creates_every_child_with_the_resource_as_owner() -> None:
    world = World()
    world.step()
    made = {(kind, name) for kind, namespace, name in world.kube.objects if namespace == "serving"}
    assert made >= {
        ("Deployment", "assistant-chat"),
        ("Service", "assistant-chat"),
        ("Service", "assistant-chat-headless"),
        ("Secret", "assistant-chat-control"),
        ("ConfigMap", "assistant-chat-tuned"),
        ("PodDisruptionBudget", "assistant-chat"),
        ("NetworkPolicy", "assistant-chat"),
    }
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Reconciling")["status"] == "True"


def test_a_steady_state_writes_nothing() -> None:
    world = running()
    world.kube.writes.clear()
    world.step(ticks=20)
    assert world.kube.writes == []
