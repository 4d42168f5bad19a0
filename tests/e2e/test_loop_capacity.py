"""Replicas within the pool, and servers that belong to somebody else."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from devcluster.cluster import Cluster
from tests.e2e.serving import Serving, leave
from tests.e2e.small_server import DEPLOYMENT, MEMBERS, inference_slo, open_deployment
from tests.e2e.system import Operator
from tests.e2e.waiting import until

pytestmark = [pytest.mark.loop, pytest.mark.timeout(900)]  # the images may have to be built first

MEAN = {"mean": "300ms"}
#: one pod with one process would be busy 0.85 of the time, and requests wait longer than they are served
RATE_RPS = 9


@pytest.fixture(scope="module")
def operator(installed: Cluster) -> Operator:
    return Operator(installed)


@pytest.fixture(scope="module")
def servers(installed: Cluster) -> Iterator[dict[str, Serving]]:
    """Two that only replicas can help, of one and of two GPUs each; and one that is adopted, without GPUs."""
    stuck = {"mode": "Auto", "latency": MEAN, "replicas": (1, 2), "processes": 1, "queue_delay": "0ms"}
    growing = inference_slo("loop-growing", gpus=1, **stuck)  # type: ignore[arg-type]
    short = inference_slo("loop-short", gpus=2, **stuck)  # type: ignore[arg-type]
    adopted = inference_slo("loop-adopted", mode="Auto", latency=MEAN, replicas=(1, 2), gpus=0, target=True)
    manifests = {
        "growing": [growing],
        "short": [short],
        "adopted": [*open_deployment("loop-adopted"), adopted],
    }
    found = {name: Serving(installed, f"loop-{name}") for name in manifests}
    found["adopted"] = replace(found["adopted"], selector="app=triton")
    try:
        for name, serving in found.items():
            serving.open(*manifests[name])
        for serving in found.values():
            serving.await_ready(1)
        # the short one waits for its clients: who comes first gets the GPUs that are left
        found["growing"].send(RATE_RPS)
        found["adopted"].send(RATE_RPS)
        yield found
    finally:
        leave(found.values())


def test_a_load_that_needs_both_replicas_gets_both_within_the_pool(servers: dict[str, Serving]) -> None:
    growing = servers["growing"]
    scaled = growing.await_decision("ScaledUp")
    assert "1 → 2 replicas" in scaled.message
    growing.await_ready(2)
    assert growing.replicas() == 2
    growing.await_condition("CapacityAvailable", "True")
    growing.await_condition("SLOMet", "True", seconds=180)
    assert [d.reason for d in growing.history()] == ["ScaledUp"]
    assert any("1 → 2 replicas" in note for note in growing.events("ScaledUp"))
    growing.assert_none_failed()


def test_who_needs_more_gpus_than_are_left_is_told_how_many_are_missing(
    servers: dict[str, Serving], operator: Operator
) -> None:
    short = servers["short"]
    short.send(RATE_RPS)
    condition = short.await_condition("CapacityAvailable", "False")
    assert condition.reason == "NoCapacity"
    assert condition.message == "chat: 2 more GPUs needed in pool a100"
    operator.after_ticks(3)
    assert short.replicas() == 1
    assert short.history() == []
    last = short.status().last_decision
    assert last is not None
    assert last.reason == "NoCapacity"
    pending = short.cluster.kubectl(
        "get", "pods", "-A", "--field-selector=status.phase=Pending", "-o", "name"
    )
    assert pending.strip() == "", "nothing waits for GPUs that are not there"
    short.assert_none_failed()


def test_an_adopted_server_is_diagnosed_and_advised_on_and_never_changed(
    servers: dict[str, Serving], operator: Operator
) -> None:
    adopted = servers["adopted"]
    deployment = adopted.get("deployment", DEPLOYMENT)
    as_found = [pod.config(model) for pod in adopted.pods() for model in MEMBERS]

    def advised() -> bool:
        models = adopted.status().models
        return bool(models and models[0].bottleneck and models[0].recommendation)

    until("the advice", advised, 120)
    (model,) = adopted.status().models
    assert model.bottleneck is not None
    assert model.recommendation is not None
    assert (model.bottleneck.reason, model.recommendation.lever) == (
        "PreprocessStarved",
        "preprocess_instances",
    )
    exposed = adopted.await_condition("ControlExposed", "True")
    assert "without a key" in exposed.message
    for mode in ("Auto", "Observe"):
        adopted.patch_spec(mode=mode)
        operator.after_ticks(3)
        status = adopted.status()
        assert status.last_decision is not None
        assert (status.last_decision.reason, status.history) == ("ObserveOnly", [])
    after = adopted.get("deployment", DEPLOYMENT)
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"] == 1
    assert after["spec"] == deployment["spec"]
    assert [pod.config(model) for pod in adopted.pods() for model in MEMBERS] == as_found
    assert adopted.children() == {}
    adopted.assert_none_failed()
