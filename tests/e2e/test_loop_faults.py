"""What goes wrong while a setting is tried: a pod or the operator dies, the server refuses, the setting does harm.

Four servers stand side by side, so that one's minutes of comparing are not another's waiting. Their two GPUs are
emulated inside the pod where the node's four are not enough.
"""

from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from slo_tuner.canary import Comparison
from tests.e2e.aa import Recorder, looks
from tests.e2e.serving import Serving, leave
from tests.e2e.small_server import FORWARD, PREPROCESSING, RESOURCE, inference_slo
from tests.e2e.system import Operator
from tests.e2e.waiting import until

pytestmark = [pytest.mark.loop, pytest.mark.timeout(900)]  # the images may have to be built first

MEAN = {"mean": "300ms"}
STARVED = {"mean": "270ms"}
LOOKS = 20


@pytest.fixture(scope="module")
def operator(installed: Cluster) -> Operator:
    return Operator(installed)


@pytest.fixture(scope="module")
def servers(installed: Cluster) -> Iterator[dict[str, Serving]]:
    """All four, under load, in Observe. Loads that are refused are so from the first change on."""
    slos = {
        "disturbed": inference_slo("loop-disturbed", latency=STARVED),
        # batching is no way out where preprocessing is refused
        "refusing": inference_slo("loop-refusing", latency=MEAN, replicas=(1, 1), gpus=0, queue_delay="0ms"),
        # only batching is left: the forward pass is slower than usual, and slower still once it is on
        "harmed": inference_slo(
            "loop-harmed",
            latency={"p99": "500ms"},
            replicas=(1, 1),
            gpus=2,
            processes=1,
            faults={"slow": {FORWARD: 1.8}, "batching_adds_ms": 700},
        ),
        "unchanged": inference_slo("loop-unchanged", latency=MEAN, gpus=0),
    }
    found = {name: Serving(installed, slo["metadata"]["namespace"]) for name, slo in slos.items()}
    try:
        for name, serving in found.items():
            serving.open(slos[name])
        for name, rate, pods in (
            ("disturbed", 18, 2),
            ("refusing", 8, 1),
            ("harmed", 6, 1),
            ("unchanged", 10, 2),
        ):
            found[name].await_ready(pods)
            found[name].send(rate)
        yield found
    finally:
        leave(found.values())


@pytest.fixture(scope="module")
def disturbed(servers: dict[str, Serving]) -> Serving:
    servers["disturbed"].patch_spec(mode="Auto")
    return servers["disturbed"]


@pytest.fixture(scope="module", autouse=True)
def refusing(servers: dict[str, Serving], operator: Operator) -> Serving:
    """Begins before the others are looked at, so that its second try is over when its turn comes."""
    serving = servers["refusing"]
    serving.inject({"fail_load": [PREPROCESSING]})
    serving.patch_spec(mode="Auto")
    return serving


@pytest.fixture(scope="module", autouse=True)
def recorder(servers: dict[str, Serving]) -> Recorder:
    return Recorder.begin(servers["unchanged"])


def test_a_canary_whose_pod_goes_away_is_abandoned_and_the_pods_end_in_agreement(disturbed: Serving) -> None:
    canary, *others = disturbed.await_phase("Analyse")
    assert others == []
    until("the canary tuned", lambda: disturbed.instances(PREPROCESSING).get(canary, 0) > 1, 30)
    disturbed.send(5)  # what a single pod with a single process carries, so that no request need fail
    disturbed.kubectl("delete", "pod", canary)
    abandoned = disturbed.await_decision("CanaryAbandoned")
    assert "preprocess_instances undone" in abandoned.message
    disturbed.await_ready(2)
    until("agreement", lambda: set(disturbed.instances(PREPROCESSING).values()) == {1}, 60)
    assert canary not in disturbed.instances(PREPROCESSING)
    assert PREPROCESSING not in disturbed.tuned()
    assert disturbed.agree()
    assert any(abandoned.message in note for note in disturbed.events("CanaryAbandoned"))
    assert disturbed.memory().tried == (), "what was not compared does not count as tried"
    disturbed.assert_none_failed()


def test_an_operator_that_is_killed_in_mid_canary_finishes_or_undoes_it_when_it_is_back(
    disturbed: Serving, operator: Operator
) -> None:
    disturbed.send(18)
    canary, *_ = disturbed.await_phase("Analyse", 240)
    until("the canary tuned", lambda: disturbed.instances(PREPROCESSING).get(canary, 0) > 1, 30)
    assert not disturbed.agree()
    ended = _ends(disturbed)
    operator.kill()
    until("the end of the change", lambda: _ends(disturbed) > ended, 240)
    until("agreement", disturbed.agree, 60)
    last = disturbed.memory().tried[-1]
    values = set(disturbed.instances(PREPROCESSING).values())
    if last.outcome == "better":
        assert disturbed.tuned()[PREPROCESSING].instances in values
    else:
        assert PREPROCESSING not in disturbed.tuned()
        assert values == {1}
    disturbed.assert_none_failed()


def _ends(serving: Serving) -> int:
    """Changes that came to an end with a verdict."""
    return len(serving.memory().tried)


def test_a_refused_load_leaves_the_old_setting_serving_and_is_not_hammered(
    refusing: Serving, operator: Operator
) -> None:
    as_found = refusing.live()
    latest = refusing.await_decision("LoadRefused", more_than=1)
    assert "refused on purpose" in latest.message

    def exhausted() -> bool:
        levers = {lever.lever: lever for lever in refusing.status().models[0].levers}
        found = levers["preprocess_instances"]
        return found.verdict == "Exhausted" and "refused" in found.why

    until("the lever put away", exhausted)
    loads = operator.metric('inferenceslo_model_loads_total{result="refused"}')
    operator.after_ticks(6)
    assert [d.reason for d in refusing.history()] == ["CanaryStarted", "LoadRefused"] * 2
    assert operator.metric('inferenceslo_model_loads_total{result="refused"}') == loads
    assert any("refused on purpose" in note for note in refusing.events("LoadRefused"))
    assert refusing.live() == as_found
    assert set(refusing.instances(PREPROCESSING).values()) == {1}
    assert refusing.tuned() == {}
    refusing.assert_none_failed()


def test_children_go_with_the_resource_and_the_namespace_ends(refusing: Serving) -> None:
    refusing.kubectl("delete", "inferenceslo", RESOURCE)
    until("the children gone", lambda: not refusing.children(), 60)
    refusing.close()


def test_a_setting_that_does_harm_is_restored_and_remembered(servers: dict[str, Serving]) -> None:
    harmed = servers["harmed"]
    as_found = harmed.live()
    harmed.patch_spec(mode="Auto")
    harmed.await_phase("Analyse")
    until("batching on", lambda: any(pod.settings(FORWARD).batching for pod in harmed.pods()), 30)
    restored = harmed.await_decision("CanaryRestored")
    assert "worse" in restored.message
    assert restored.evidence["latency_change_percent"] > 0
    (tried,) = harmed.memory().tried
    assert (tried.lever, tried.outcome) == ("batching", "worse")
    until("batching off", lambda: harmed.live() == as_found, 30)
    assert harmed.tuned() == {}
    until("the lever put away", lambda: _verdict(harmed, "batching") == "Exhausted")
    harmed.assert_none_failed()


def _verdict(serving: Serving, lever: str) -> str:
    return next(found.verdict for found in serving.status().models[0].levers if found.lever == lever)


def test_an_unchanged_setting_is_called_better_or_worse_at_most_once_in_twenty_looks(
    recorder: Recorder,
) -> None:
    findings = looks(recorder.wait_for_blocks(), LOOKS)
    assert len(findings) == LOOKS
    called = [f for f in findings if f.comparison in (Comparison.BETTER, Comparison.WORSE)]
    assert len(called) <= 1, [f"{f.comparison}: {f.why}" for f in called]
    assert all(f.comparison is not Comparison.EARLY for f in findings)
