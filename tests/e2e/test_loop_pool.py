"""Preprocessing moves off hosts without CPU to spare, and clients never notice what happens to the pool.

One story in its order, on one server of two pods with one core each, starved in preprocessing.
"""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from slo_operator.api.names import PLURAL
from slo_operator.api.status import PoolStatus
from tests.e2e.pods import Json
from tests.e2e.serving import Serving, leave
from tests.e2e.small_server import DEPLOYMENT, MODEL, PREPROCESSING, RESOURCE, inference_slo
from tests.e2e.system import Operator, processes_of
from tests.e2e.waiting import until
from tests.e2e.web import ask

pytestmark = [pytest.mark.loop, pytest.mark.timeout(900)]  # the images may have to be built first

RATE_RPS = 16
POOL = f"{DEPLOYMENT}-pool"
LEVER = "preprocess_pool"
#: a prompt of a megabyte, an integer where text belongs, a shape that the model does not have, no input at all
ODD: dict[str, list[Json]] = {
    "a megabyte": [{"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": ["word " * 200_000]}],
    "a number": [{"name": "PROMPT", "datatype": "INT32", "shape": [1, 1], "data": [7]}],
    "another shape": [{"name": "PROMPT", "datatype": "BYTES", "shape": [1, 3], "data": ["a", "b", "c"]}],
    "nothing": [],
}


@pytest.fixture(scope="module")
def operator(installed: Cluster) -> Operator:
    return Operator(installed)


@pytest.fixture(scope="module")
def serving(installed: Cluster) -> Iterator[Serving]:
    found = Serving(
        installed, "loop-pool", selector=f"inferenceslo.dev/server={DEPLOYMENT.partition('-')[2]}"
    )
    held = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "3", "memory": "2Gi"}}
    pool = {"maxReplicas": 3, "resources": held}
    found.open(inference_slo(found.namespace, latency={"mean": "260ms"}, cores=1, pool=pool))
    found.await_ready(2)
    found.send(RATE_RPS)
    yield found
    leave([found])


def pool_pods(serving: Serving) -> list[Json]:
    """The pool's pods that are ready and stay."""
    found = json.loads(
        serving.kubectl("get", "pods", "-l", "inferenceslo.dev/server=chat-pool", "-o", "json")
    )
    return [
        pod
        for pod in found["items"]
        if "deletionTimestamp" not in pod["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
    ]


def pool(serving: Serving) -> PoolStatus:
    found = serving.status().servers[0].preprocess_pool
    assert found is not None
    return found


def moved(serving: Serving) -> list[str]:
    """Pods in which the stage is forwarded."""
    return [pod.name for pod in serving.pods() if pod.forwards(PREPROCESSING)]


def answers(serving: Serving) -> dict[str, int]:
    """The status that each odd request gets from each pod; all pods must agree."""
    found = {}
    for name, inputs in ODD.items():
        statuses = {ask(f"{p.http}/v2/models/{MODEL}/infer", {"inputs": inputs})[0] for p in serving.pods()}
        assert len(statuses) == 1, f"{name}: {statuses}"
        found[name] = statuses.pop()
    return found


def test_hosts_without_cpu_rule_processes_out_and_say_why(serving: Serving) -> None:
    def levers() -> dict[str, str] | None:
        models = serving.status().models
        found = {lever.lever: f"{lever.verdict}: {lever.why}" for lever in models[0].levers} if models else {}
        return found if "no CPU left" in found.get("preprocess_instances", "") else None

    found = until("processes ruled out", levers, 150)
    assert found["preprocess_instances"].startswith("Ineligible: no CPU left")
    assert "cores" in found["preprocess_instances"]
    assert not serving.exists("deployment", POOL), "nothing is started while nothing may be changed"


def test_the_stage_moves_on_one_pod_first_and_an_operator_that_is_killed_meanwhile_finishes_it(
    serving: Serving, operator: Operator
) -> None:
    before = answers(serving)
    serving.patch_spec(mode="Auto")
    serving.await_decision("PoolStarting")
    canary = serving.await_phase("Analyse", 180)
    assert len(pool_pods(serving)) >= 2, "the pool is there before a stage moves into it"
    until("the canary forwards", lambda: moved(serving) == canary[:1])
    operator.kill()
    until("both pods forward", lambda: len(moved(serving)) == 2, 240)
    serving.await_decision("Promoted")
    assert answers(serving) == before, "odd requests get the answers that they got before"
    until("the pool to answer", lambda: pool(serving).network is not None, 120)
    serving.assert_none_failed()


def test_a_killed_member_fails_no_request(serving: Serving) -> None:
    victim = pool_pods(serving)[0]
    for pid in processes_of(victim["metadata"]["uid"]):
        os.kill(pid, signal.SIGKILL)
    until("the member restarted", lambda: len(pool_pods(serving)) >= 2, 120)
    serving.assert_none_failed()


def test_a_pool_without_members_fails_no_request(serving: Serving) -> None:
    names = [pod["metadata"]["name"] for pod in pool_pods(serving)]
    serving.kubectl("delete", "pod", *names, "--grace-period=0", "--force")
    serving.await_condition("PoolUnavailable", "True", "computed in the server")
    until("the pool is back", lambda: len(pool_pods(serving)) >= 2, 120)
    serving.assert_none_failed()
    until("the pool to answer all", lambda: serving.condition("PoolUnavailable") is None, 150)


def test_members_that_hang_or_are_slow_fail_no_request(serving: Serving) -> None:
    """One is stopped, not dead: connections stay open and nobody answers. The others take longer than they may."""
    hung, *others = pool_pods(serving)
    slow = [pod["metadata"]["name"] for pod in others]
    serving.inject({"slow": {PREPROCESSING: 30}}, slow)
    pids = processes_of(hung["metadata"]["uid"])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        serving.await_condition("PoolUnavailable", "True", "computed in the server")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        serving.inject({}, slow)
    serving.assert_none_failed()


def test_the_pool_grows_with_the_load_to_what_is_declared(serving: Serving) -> None:
    serving.send(26, seed=2)
    until("three replicas", lambda: len(pool_pods(serving)) == 3, 240)
    serving.send(RATE_RPS, seed=3)
    assert int(serving.get("deployment", POOL)["spec"]["replicas"]) == 3
    assert serving.failures() == []


def test_without_the_declaration_the_stage_comes_back_and_the_pool_goes(serving: Serving) -> None:
    before = [pod.uid for pod in serving.pods()]
    serving.kubectl(
        "patch", PLURAL, RESOURCE, "--type=json", "-p",
        json.dumps([{"op": "remove", "path": "/spec/servers/0/preprocessPool"}]),
    )  # fmt: skip
    until("the pool is gone", lambda: not serving.exists("deployment", POOL), 300)
    assert moved(serving) == [], "it stays until nobody asks it any more"
    assert [pod.uid for pod in serving.pods()] == before, "nothing is restarted for it"
    serving.assert_none_failed()
