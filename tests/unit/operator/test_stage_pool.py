"""The pool's objects follow the tuner's word, and what is seen of the pool gets to the tuner and into the status."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.observe.measured import Field, Forwarded, Measurements
from slo_operator.observe.records import project_deployment, project_pod
from slo_operator.observe.stage_pool import stage_pool_view
from slo_tuner.decide import decide
from slo_tuner.decision import Decision, StagePool
from slo_tuner.settings import Remote
from slo_tuner.signal import Unknown, Value
from slo_tuner.snapshot import ServerView, StagePoolView
from tests.unit.operator.fakes import FakeTriton, pod, resource
from tests.unit.operator.world import World, running

KINDS = ("ConfigMap", "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment")


def declared() -> dict[str, Any]:
    body = resource()
    body["spec"]["servers"][0]["preprocessPool"] = {"maxReplicas": 4, "resources": {"limits": {"cpu": "2"}}}
    return body


@dataclass
class Script:
    """A tuner that says what it is told about the pool, and keeps what it saw of it."""

    wanted: StagePool | None = None
    seen: StagePoolView | None = None
    moved: bool = False

    def __call__(self, view: ServerView, *args: Any) -> Decision:
        self.seen = view.stage_pool
        found = replace(decide(view, *args), stage_pool=self.wanted)
        stage = found.stable.get("preprocessing")
        if not self.moved or stage is None:
            return found
        return replace(
            found, stable={**found.stable, "preprocessing": replace(stage, remote=Remote(1000, 1))}
        )


def children(world: World) -> set[str]:
    """Kinds of the pool's objects that are there."""
    return {
        kind
        for kind, _, name in world.kube.objects
        if name in ("assistant-chat-pool", "assistant-chat-pool-tuned")
    }


def world_with(script: Script, body: dict[str, Any] | None = None) -> World:
    return running(body or declared(), brain=script)


def test_a_pool_comes_and_goes_with_the_tuners_word_and_stays_when_it_says_nothing() -> None:
    script = Script()
    world = world_with(script)
    assert children(world) == set(), "declaring it starts nothing"
    script.wanted = StagePool(3, ("preprocessing",))
    world.step()
    assert children(world) == set(KINDS)
    assert world.child("Deployment", "assistant-chat-pool")["spec"]["replicas"] == 3
    script.wanted = None
    world.step(ticks=2)
    assert children(world) == set(KINDS)
    script.wanted = StagePool()
    world.step(ticks=2)
    assert children(world) == set()
    assert ("Deployment", "serving", "assistant-chat") in world.kube.objects


def test_a_pool_that_is_no_longer_declared_goes_once_no_stage_is_in_it() -> None:
    script = Script(StagePool(2, ("preprocessing",)), moved=True)
    world = world_with(script)
    assert children(world) == set(KINDS)
    del world.body["spec"]["servers"][0]["preprocessPool"]
    world.body["metadata"]["generation"] = 2
    world.step(ticks=2)
    assert children(world) == set(KINDS), "pods that start now would ask it"
    script.moved = False
    world.step(ticks=2)
    assert children(world) == set()


def test_a_pool_that_is_no_longer_declared_stays_while_a_pod_does_not_say_what_it_runs() -> None:
    script = Script(StagePool(2, ("preprocessing",)))
    world = world_with(script)
    silent = next(iter(world.tritons.values()))
    silent.silent = True
    del world.body["spec"]["servers"][0]["preprocessPool"]
    world.body["metadata"]["generation"] = 2
    world.step(ticks=2)
    assert children(world) == set(KINDS)
    silent.silent = False
    world.step(ticks=2)
    assert children(world) == set()


def test_a_pool_in_steady_state_is_written_once() -> None:
    script = Script(StagePool(2, ("preprocessing",)))
    world = world_with(script)
    world.step(ticks=2)
    world.kube.writes.clear()
    world.step(ticks=5)
    assert [w for w in world.kube.writes if "pool" in w[2]] == []


def test_the_pools_pods_are_seen_and_are_none_of_the_servers() -> None:
    script = Script(StagePool(2, ("preprocessing",)))
    world = world_with(script)
    deployment = world.child("Deployment", "assistant-chat-pool")
    for i in range(2):
        world.kube.put(pod(deployment, f"assistant-chat-pool-{i}", f"10.0.2.{i}"))
        world.tritons[f"assistant-chat-pool-{i}"] = FakeTriton()
    deployment["status"] = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
    }
    world.step(ticks=2)
    assert script.seen is not None
    assert (script.seen.ready, script.seen.stages) == (2, ("preprocessing",))
    server = world.status["servers"][0]
    assert server["readyReplicas"] == 2
    assert server["preprocessPool"]["readyReplicas"] == 2
    assert server["preprocessPool"]["cores"] == 4


# --- what is measured -------------------------------------------------------------------------------------------------

DEPLOYMENT: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "s",
        "generation": 3,
        "annotations": {"inferenceslo.dev/stages": "a,b"},
    },
    "spec": {"replicas": 2, "selector": {"matchLabels": {"x": "y"}}},
    "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
}


def view(measured: Measurements, **status: int) -> StagePoolView:
    deployment = project_deployment({**DEPLOYMENT, "status": {**DEPLOYMENT["status"], **status}})
    servers = [project_pod({"metadata": {"name": "gpu-0", "namespace": "s"}})]
    members = [project_pod({"metadata": {"name": "cpu-0", "namespace": "s"}})]
    return stage_pool_view(PreprocessPool(max_replicas=4), deployment, members, servers, "s", measured)


def test_the_network_is_what_a_request_takes_beyond_its_time_in_the_pool() -> None:
    """100 requests at 40 ms as the servers saw them, 37 ms inside the pool, 30 ms of it computing."""
    rows = {
        ("s", "cpu-0", "a"): {
            Field.REQUESTS: 100.0,
            Field.REQUEST_US: 100 * 37_000.0,
            Field.COMPUTE_INFER_US: 100 * 30_000.0,
        },
        ("s", "gpu-0", "a"): {Field.REQUESTS: 100.0, Field.COMPUTE_INFER_US: 100 * 40_000.0},
        ("other", "cpu-0", "a"): {Field.REQUESTS: 900.0, Field.COMPUTE_INFER_US: 1.0},
    }
    forwarded = {("s", "gpu-0", "a"): Forwarded(answered=98.0, local=2.0, seconds=98 * 0.040)}
    found = view(Measurements(0.0, 60.0, rows=rows, forwarded=forwarded))
    assert found.service_s == {"a": pytest.approx(0.030)}
    assert isinstance(found.network_s, Value)
    assert found.network_s.value == pytest.approx(0.003)
    assert isinstance(found.local_share, Value)
    assert found.local_share.value == pytest.approx(0.02)


def test_waiting_is_told_by_size_over_all_servers() -> None:
    """Below 1 KiB: 30 requests of 10 ms met an idle member, 10 others took 30 ms. Four large ones are too few to say."""
    small = {(1024.0, True): (15.0, 0.15), (1024.0, False): (5.0, 0.15)}
    forwarded = {
        ("s", "gpu-0", "a"): Forwarded(answered=24.0, by_size={**small, (8192.0, True): (4.0, 1.6)}),
        ("s", "gpu-1", "a"): Forwarded(answered=20.0, by_size=small),
    }
    servers = [project_pod({"metadata": {"name": f"gpu-{n}", "namespace": "s"}}) for n in (0, 1)]
    declared = PreprocessPool(max_replicas=4)
    found = stage_pool_view(declared, None, [], servers, "s", Measurements(0.0, 60.0, forwarded=forwarded))
    small_view, large_view = found.sizes["a"]
    assert (small_view.below_bytes, small_view.requests) == (1024.0, 40.0)
    assert (small_view.mean_s, small_view.alone_s) == pytest.approx((0.015, 0.010))
    assert (large_view.below_bytes, large_view.requests, large_view.alone_s) == (8192.0, 4.0, None)


def test_without_forwarded_requests_nothing_is_known_of_the_way() -> None:
    found = view(Measurements(0.0, 60.0))
    assert isinstance(found.network_s, Unknown)
    assert isinstance(found.local_share, Unknown)
    assert found.service_s == {}


@pytest.mark.parametrize("status", [{"observedGeneration": 2}, {"updatedReplicas": 1}])
def test_a_pool_that_rolls_serves_no_stage_for_sure(status: dict[str, int]) -> None:
    assert view(Measurements(0.0, 60.0)).stages == ("a", "b")
    assert view(Measurements(0.0, 60.0), **status).stages == ()
