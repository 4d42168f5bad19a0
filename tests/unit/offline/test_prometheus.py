"""What `slo diagnose` says from Prometheus alone: the same as the loop, of the same moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slo_operator.api.model import Limits
from slo_operator.observe.prometheus import PrometheusError, Sample
from slo_operator.offline import view
from slo_operator.offline.diagnose import diagnose, together
from slo_operator.offline.prometheus import Asked, NothingServedError, questions
from slo_tuner.decide import decide
from slo_tuner.decision import Decision
from slo_tuner.objectives import Objective
from slo_tuner.snapshot import ServerView
from tests.unit.operator.fake_prometheus import FakePrometheus, Load
from tests.unit.operator.fakes import resource
from tests.unit.operator.world import running

AT = 1_700_001_000.0
ASKED = Asked("serving", AT)


@pytest.fixture
def prometheus() -> FakePrometheus:
    """One server of two pods with an ensemble, one of another model."""
    fake = FakePrometheus()
    for pod in ("chat-0", "chat-1"):
        fake.loads[pod, "preprocessing"] = Load(20.0, 0.05, 0.02, 0.03)
        fake.loads[pod, "forward"] = Load(20.0, 0.13, 0.01, 0.12)
    fake.loads["rank-0", "ranker"] = Load(5.0, 0.01, 0.0, 0.01)
    return fake


def told(fake: FakePrometheus, asked: Asked = ASKED) -> dict[str, Any]:
    return together([diagnose(q) for q in questions(fake, asked)])


def test_the_operators_status_and_the_diagnosis_agree_on_the_same_moment() -> None:
    seen: list[ServerView] = []

    def watching(server: ServerView, *rest: Any) -> Decision:
        seen.append(server)
        return decide(server, *rest)

    body = resource()
    body["spec"]["servers"][0]["models"][0]["slo"] = {"latency": {"mean": "300ms"}, "window": "1m"}
    world = running(body, brain=watching)
    world.serve(latency=0.5, preprocess_queue=0.33, rps=30.0)
    world.step(ticks=6)
    (question,) = questions(world.prometheus, Asked("serving", world.clock.now))
    (pipeline,) = seen[-1].pipelines
    found = diagnose(replace(question, models=seen[-1].models, objectives=pipeline.objectives, gpus=2))
    mine = next(m for m in found["models"] if m["model"] == "assistant")
    status = next(m for m in world.status["models"] if m["name"] == "assistant")
    stages = [(s["stage"], s["model"], s["time"]) for s in status["breakdown"]["stages"]]
    assert stages == [(s["stage"], s["model"], f"{s['ms']:.3g}ms") for s in mine["breakdown"]]
    assert len(stages) >= 4
    assert mine["bottleneck"]["reason"] == status["bottleneck"]["reason"] == "PreprocessStarved"
    assert [s["state"] for s in mine["slo"]] == ["missed"]
    assert [s["met"] for s in status["slo"]] == ["False"]
    assert mine["rate_rps"] == pytest.approx(60.0)


def test_pods_with_the_same_models_are_one_server(prometheus: FakePrometheus) -> None:
    by_pods = {tuple(q.pods): tuple(sorted(q.names)) for q in questions(prometheus, ASKED)}
    assert by_pods == {("chat-0", "chat-1"): ("forward", "preprocessing"), ("rank-0",): ("ranker",)}
    found = {m["model"]: m for m in told(prometheus)["models"]}
    assert found["forward"]["pods"] == ["chat-0", "chat-1"]
    assert found["forward"]["rate_rps"] == pytest.approx(40.0)
    assert found["ranker"]["pods"] == ["rank-0"]
    assert found["ranker"]["mean_latency_ms"] == pytest.approx(10.0)


def test_where_every_objective_is_met_no_bottleneck_is_told_with_or_without_settings(
    prometheus: FakePrometheus,
) -> None:
    question = questions(prometheus, ASKED)[-1]
    (ranker,) = diagnose(replace(question, objectives=(Objective("latency", None, 0.3),)))["models"]
    assert ranker["bottleneck"]["reason"] == "None"
    (ranker,) = diagnose(replace(question, objectives=(Objective("latency", None, 0.005),)))["models"]
    assert ranker["bottleneck"]["reason"] == "Unexplained"


def test_the_window_is_the_loops_unless_it_is_given(prometheus: FakePrometheus) -> None:
    """Scrapes every 5 s: a minute is the least that the loop takes."""
    assert told(prometheus)["window_s"] == 60.0
    assert told(prometheus, replace(ASKED, window_s=120.0))["window_s"] == 120.0


def test_a_pod_without_enough_scrapes_is_named_and_not_counted_with(prometheus: FakePrometheus) -> None:
    """A scrape every 30 s: two within a minute, and four are needed."""
    prometheus.scrape_s = 30.0
    found = told(prometheus, replace(ASKED, window_s=60.0))
    ranker = next(m for m in found["models"] if m["model"] == "ranker")
    assert ranker["state"] == "unknown"
    assert ranker["mean_latency_ms"] is None
    (why,) = [w["message"] for w in ranker["warnings"] if w["code"] == "PodNotCovered"]
    assert "rank-0" in why
    assert "4 are needed" in why


def test_limits_of_cpu_and_gpus_come_from_their_exporters(prometheus: FakePrometheus) -> None:
    prometheus.extra["container_spec_cpu_quota"] = [
        Sample({"pod": "rank-0", "container": "server"}, 1.5),
        Sample({"pod": "rank-0", "container": "proxy"}, 0.5),
        Sample({"pod": "chat-0", "container": "triton"}, float("nan")),
    ]
    prometheus.extra["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] = [
        Sample({"namespace": "serving", "pod": "chat-0", "UUID": gpu}, 0.3) for gpu in ("GPU-1", "GPU-2")
    ]
    chat, rank = questions(prometheus, ASKED)
    assert dict(rank.cpu_limits) == {"rank-0": 2.0}
    assert dict(chat.cpu_limits) == {}
    assert (chat.gpus, rank.gpus) == (2, 1)


def test_a_namespace_without_servers_is_said_with_those_that_have_some(prometheus: FakePrometheus) -> None:
    prometheus.extra["max by (namespace, pod, model) (nv_inference_request_success"] = []
    with pytest.raises(NothingServedError, match=r"no pod in namespace web has .*; those in serving have"):
        questions(prometheus, replace(ASKED, namespace="web"))
    prometheus.empty = True
    with pytest.raises(NothingServedError, match="is Triton scraped"):
        questions(prometheus, ASKED)


def test_a_prometheus_that_is_gone_says_so(prometheus: FakePrometheus) -> None:
    prometheus.gone = True
    with pytest.raises(PrometheusError, match="connection refused"):
        questions(prometheus, ASKED)


def test_levers_go_as_far_as_where_nobody_declares_limits() -> None:
    limits = Limits()
    assert limits.batch_size.max == view.MAX_BATCH
    assert limits.queue_delay.max.microseconds == view.MAX_DELAY_US
    assert limits.preprocess_instances.max == view.MAX_PROCESSES
