"""The whole loop over a small cluster: what it writes, when it holds, how it comes back."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from slo_operator.config import parse_config
from slo_tuner.decide import decide
from slo_tuner.decision import Decision
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.snapshot import ServerView
from tests.unit.operator.brain import canary_brain
from tests.unit.operator.fakes import resource
from tests.unit.operator.world import World, canary, running


def test_a_served_pipeline_is_ready_measured_and_met() -> None:
    world = running()
    found = {c["type"]: c["status"] for c in world.status["conditions"]}
    assert found == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "SLOMet": "True",
        "MetricsAvailable": "True",
        "CapacityAvailable": "True",
        "Suspended": "False",
    }
    stages = world.status["models"][0]["breakdown"]["stages"]
    assert ("preprocess", "preprocessing", "30ms") in [(s["stage"], s["model"], s["time"]) for s in stages]
    assert ("forward", "forward", "120ms") in [(s["stage"], s["model"], s["time"]) for s in stages]


def test_blocks_have_the_gateways_misses_and_the_members_times() -> None:
    """20 requests/s on each pod, a tenth of one's over the target: 20 of a block's 200, each 50 ms in preprocessing."""
    views: list[ServerView] = []

    def brain(view: ServerView, *rest: Any) -> Decision:
        views.append(view)
        return decide(view, *rest)

    gateway = {"family": "seen_seconds", "podLabel": "upstream"}
    world = World(
        config=parse_config({"interval": "5s", "gatewayHistograms": [gateway]}, "test"), brain=brain
    )
    world.prometheus.answered = {"10.0.0.1": (20.0, 0.1), "10.0.0.2": (20.0, 0.0)}
    world.step()
    world.roll_out()
    world.serve()
    world.step(ticks=2)
    blocks = views[-1].blocks
    assert {b.pod: round(b.misses or 0.0, 6) for b in blocks} == {
        "assistant-chat-0": 20.0,
        "assistant-chat-1": 0.0,
    }
    assert all(b.stage_sums_s["preprocessing"] == pytest.approx(200 * 0.05) for b in blocks)


def test_a_steady_state_writes_nothing_in_twenty_ticks() -> None:
    world = running()
    world.step(ticks=15)
    world.kube.writes.clear()
    before = [list(t.loads) for t in world.tritons.values()]
    world.step(ticks=20)
    assert world.kube.writes == []
    assert [t.loads for t in world.tritons.values()] == before


def test_the_number_of_queries_does_not_depend_on_the_number_of_pods() -> None:
    world = running()
    world.prometheus.queries = 0
    world.step()
    few = world.prometheus.queries
    for i in range(2, 12):
        world.prometheus.loads[f"other-{i}", "assistant"] = world.prometheus.loads[
            "assistant-chat-0", "assistant"
        ]
    world.prometheus.queries = 0
    world.step()
    assert world.prometheus.queries == few


def test_prometheus_gone_holds_everything_and_says_so_and_since_when() -> None:
    world = canary()
    loads = [list(t.loads) for t in world.tritons.values()]
    world.prometheus.gone = True
    world.traced = False
    world.step()
    gone_at = world.condition("MetricsAvailable")["lastTransitionTime"]
    world.step(ticks=5)
    condition = world.condition("MetricsAvailable")
    assert (condition["status"], condition["reason"]) == ("False", "Unavailable")
    assert condition["lastTransitionTime"] == gone_at
    assert "connection refused" in condition["message"]
    assert f"since {gone_at}" in condition["message"]
    assert world.child("Deployment", "assistant-chat")["spec"]["replicas"] == 2
    assert [t.loads for t in world.tritons.values()] == loads


def test_an_empty_prometheus_is_unknown_and_never_idle() -> None:
    world = running()
    world.prometheus.empty = True
    world.step(ticks=3)
    assert world.condition("MetricsAvailable")["status"] == "False"
    assert "no series of this pod" in world.condition("MetricsAvailable")["message"]
    assert world.status["lastDecision"]["reason"] == "NoData"


def test_a_canary_goes_to_one_pod_and_is_remembered_first() -> None:
    world = canary()
    touched = [name for name, t in world.tritons.items() if t.loads]
    assert len(touched) == 1
    state = world.child("ConfigMap", "assistant-chat-state")["data"]["memory.json"]
    assert touched[0] in state
    assert "CanaryStarted" in world.reasons
    assert world.status["servers"][0]["change"]["pods"] == touched


def test_observe_and_recommend_change_no_server() -> None:
    for mode in ("Observe", "Recommend"):
        world = running(resource(mode), missing=0.1)
        world.step(ticks=20)
        assert all(t.loads == [] for t in world.tritons.values()), mode
        assert world.condition("SLOMet")["status"] == "False"
        assert world.status["models"][0]["bottleneck"] is not None


def test_suspend_stops_every_write_but_status() -> None:
    body = resource("Auto", suspend=True)
    world = World(body)
    world.step(ticks=3)
    assert {w[0] for w in world.kube.writes} == {"status"}
    assert world.condition("Suspended")["status"] == "True"


def test_a_crash_between_the_state_and_the_load_is_finished_by_the_next_start() -> None:
    world = running(brain=canary_brain, started=False)
    for triton in world.tritons.values():
        triton.dies = True
    world.step()
    assert '"change":{' in world.memory.replace(" ", "")
    assert all(t.loads == [] for t in world.tritons.values())
    for triton in world.tritons.values():
        triton.dies = False
    world.restart()
    world.step()
    assert [t.loads for t in world.tritons.values()] == [["preprocessing"], []]


def test_a_refused_load_is_told_to_the_tuner_and_to_people_and_the_old_settings_stay() -> None:
    world = running(brain=canary_brain, started=False)
    world.tritons["assistant-chat-0"].refuses = {"preprocessing": "invalid argument: out of memory"}
    world.step(ticks=3)
    assert world.reasons == ["CanaryStarted", "LoadRefused"]
    assert any("out of memory" in e["note"] for e in world.kube.events)
    assert world.status["lastDecision"]["reason"] == "Waiting"  # the script gives up after a refusal
    assert world.tritons["assistant-chat-0"].loads == ["preprocessing"]
    assert world.tritons["assistant-chat-0"].configs["preprocessing"].instance_group[0].count == 1
    assert world.tritons["assistant-chat-1"].loads == []


def test_a_server_that_says_yes_and_runs_something_else_counts_as_a_refusal() -> None:
    world = running(brain=canary_brain, started=False)
    world.tritons["assistant-chat-0"].ignores = {"preprocessing"}
    world.step(ticks=2)
    note = next(e["note"] for e in world.kube.events if e["reason"] == "LoadRefused")
    assert "said yes" in note


def test_a_pod_that_restarts_from_the_file_is_brought_back_to_the_settings_of_record() -> None:
    world = running()
    first = world.tritons["assistant-chat-0"]
    first.configs["preprocessing"].instance_group[0].count = 3
    world.step(seconds=61)
    assert first.loads == ["preprocessing"]
    assert first.configs["preprocessing"].instance_group[0].count == 1
    assert world.tritons["assistant-chat-1"].loads == []


def test_a_spec_that_cannot_be_read_stalls_and_names_the_field_and_nothing_is_lost() -> None:
    world = running()
    models = copy.deepcopy(world.status["models"])
    world.body["spec"]["servers"][0]["pool"] = "nowhere"
    world.body["metadata"]["generation"] = 2
    world.kube.writes.clear()
    world.step(ticks=3)
    stalled = world.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
    assert "nowhere is not a name of spec.pools" in stalled["message"]
    assert world.status["models"] == models
    assert {w[0] for w in world.kube.writes} == {"status"}


def test_one_bad_resource_does_not_stop_the_others() -> None:
    def brain(view: Any, *args: Any) -> Any:
        if view.resource == "broken":
            raise RuntimeError("boom")
        return decide(view, *args)

    world = World(brain=brain)
    broken = resource()
    broken["metadata"] |= {"name": "broken", "uid": "uid-broken"}
    world.kube.put(broken)
    for reflector in world.operator.cluster._all:
        reflector.relist()
    world.operator.loop.tick([world.kube.objects["InferenceSLO", "serving", "broken"], world.body])
    assert ("Deployment", "serving", "assistant-chat") in world.kube.objects
    assert ("Deployment", "serving", "broken-chat") in world.kube.objects  # declared is declared
    status = world.kube.objects["InferenceSLO", "serving", "broken"]["status"]
    assert "boom" in status["servers"][0]["message"]


def test_a_new_image_rolls_out_before_anything_is_tuned() -> None:
    world = running(brain=canary_brain, started=False)
    world.body["spec"]["servers"][0]["image"] = "triton:2"
    world.body["metadata"]["generation"] = 2
    world.step()
    world.child("Deployment", "assistant-chat")["status"]["updatedReplicas"] = 1
    world.step(ticks=10)
    assert world.status["lastDecision"]["message"].startswith("a rollout is under way")
    assert all(t.loads == [] for t in world.tritons.values())
    # the pool has four GPUs and all are wanted: nothing may be started before something goes
    strategy = world.child("Deployment", "assistant-chat")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def test_pods_that_start_later_come_up_with_tuned_models_only() -> None:
    world = running()
    assert world.child("ConfigMap", "assistant-chat-tuned")["data"]["settings.json"].strip() == "{}"


def test_traces_are_switched_on_in_managed_pods_and_stay_on() -> None:
    world = running()
    for triton in world.tritons.values():
        assert triton.tracing == {"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]}
        triton.tracing = {"trace_level": ["OFF"], "trace_rate": ["1000"]}  # the container started anew
    world.step(seconds=61)
    assert all(t.tracing["trace_level"] == ["TIMESTAMPS"] for t in world.tritons.values())


def test_a_pod_is_not_traced_when_it_is_made_to_batch() -> None:
    """Triton's tracing can crash a server that batches."""

    def brain(*args: Any) -> Any:
        decision = decide(*args)
        settings = {pod: dict(s) for pod, s in decision.settings.items()}
        if "assistant-chat-0" in settings:
            settings["assistant-chat-0"]["forward"] = ModelSettings(2, 16, Batching(5000))
        return replace(decision, settings=settings)

    world = running()
    world.brain = brain
    traced_at_load: list[list[str]] = []
    triton = world.tritons["assistant-chat-0"]
    load = triton.load

    def note(model: str, config: str) -> None:
        traced_at_load.append(triton.tracing["trace_level"])
        load(model, config)

    world.restart()
    with patch.object(triton, "load", note):
        world.step(ticks=3)
    assert traced_at_load == [["OFF"]]
    assert triton.tracing["trace_level"] == ["OFF"]
    assert world.tritons["assistant-chat-1"].tracing["trace_level"] == ["TIMESTAMPS"]
