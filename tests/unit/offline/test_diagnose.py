"""Two pages in, a diagnosis out: right on good ones, "unknown" where they do not carry an answer.

Names such as A03 are those of public reports; numbers with a source are theirs.
"""

from __future__ import annotations

from typing import Any

import pytest

from slo_operator.offline.diagnose import diagnose, missed
from slo_operator.offline.pages import Pair, measurements, models_of
from slo_operator.offline.view import Question
from slo_tuner.objectives import Objective
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig
from tests.unit.offline.pages import Rows, nothing, page, row

P99 = Objective("latency", 0.99, 0.3)
#: job 1 on one pod: 20 requests/s, one process of 28 ms with 100 ms of queue, a forward pass of 120 ms
STARVED: Rows = {
    "preprocessing": row(1200, 100, 28),
    "forward": row(1200, 10, 120),
    "postprocessing": row(1200, 0, 2),
    "chat": row(1200, 0, 150, latency_ms=262),
}
STEPS = tuple(
    EnsembleStep(model, (f"t{n}",), (f"t{n + 1}",))
    for n, model in enumerate(("preprocessing", "forward", "postprocessing"))
)
REPOSITORY = {
    "preprocessing": ModelConfig("preprocessing", ModelSettings(1, 16)),
    "forward": ModelConfig("forward", ModelSettings(4, 16), uses_gpu=True),
    "postprocessing": ModelConfig("postprocessing", ModelSettings(2, 16)),
    "chat": ModelConfig("chat", ModelSettings(1, 16), steps=STEPS),
}


def ask(
    after: Rows,
    before: Rows | None = None,
    models: dict[str, ModelConfig] | None = None,
    objectives: tuple[Objective, ...] = (P99,),
    quantiles: dict[str, dict[str, float]] | None = None,
    seconds: float = 60.0,
    pods: int = 1,
) -> dict[str, Any]:
    """The diagnosis of pods that all show these pages."""
    first = nothing(after) if before is None else before
    pairs = [Pair(f"pod-{n}", page(first), page(after, quantiles)) for n in range(pods)]
    measured, warnings = measurements(pairs, seconds)
    names = models_of(pairs)
    return diagnose(Question(measured, [p.pod for p in pairs], names, warnings, models, objectives))


def only(found: dict[str, Any], name: str) -> dict[str, Any]:
    one: dict[str, Any] = next(model for model in found["models"] if model["model"] == name)
    return one


def stages(model: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(one["stage"], one["model"]): one["ms"] for one in model["breakdown"]}


def codes(model: dict[str, Any]) -> set[str]:
    return {one["code"] for one in model["warnings"]}


def test_the_first_job_is_seen_from_two_pages_and_the_repository() -> None:
    chat = only(
        ask(STARVED, models=REPOSITORY, quantiles={"chat": {"0.5": 200e3, "0.9": 500e3, "0.99": 700e3}}),
        "chat",
    )
    assert chat["state"] == "active"
    assert chat["rate_rps"] == 20
    assert chat["mean_latency_ms"] == 262
    assert chat["p99"] == {"ms": 700, "source": "nv_inference_request_summary_us", "kind": "value"}
    assert stages(chat)["busy_wait", "preprocessing"] == 100
    assert stages(chat)["forward", "forward"] == 120
    assert stages(chat)["unexplained", "chat"] == pytest.approx(2)
    assert chat["bottleneck"]["reason"] == "PreprocessStarved"
    first = next(one for one in chat["levers"] if one["verdict"] != "ineligible")
    assert (first["lever"], first["verdict"]) == ("preprocess_instances", "recommended")
    assert "count: " in first["setting"]["preprocessing"]
    (slo,) = chat["slo"]
    assert (slo["objective"], slo["target"], slo["observed"], slo["state"]) == (
        "latency.p99",
        300,
        700,
        "missed",
    )


def test_the_breakdown_adds_up_to_the_mean() -> None:
    for models in (REPOSITORY, None):
        chat = only(ask(STARVED, models=models), "chat")
        assert sum(stages(chat).values()) == pytest.approx(chat["mean_latency_ms"], rel=1e-3)


def test_what_a_queue_delay_may_have_cost_is_given_with_its_bounds_and_nothing_else_is() -> None:
    """10 ms of queue with a delay of 5 ms: at most 5 ms of it are the delay, at least 5 ms a busy instance."""
    forward = ModelConfig("forward", ModelSettings(4, 16, Batching(5_000)), uses_gpu=True)
    chat = only(ask(STARVED, models={**REPOSITORY, "forward": forward}), "chat")
    bounds = {(one["stage"], one["model"]): (one.get("low"), one.get("high")) for one in chat["breakdown"]}
    assert bounds.pop(("batching_delay", "forward")) == (0, 5)
    assert bounds.pop(("busy_wait", "forward")) == (5, 10)
    assert set(bounds.values()) == {(None, None)}
    assert all("low" not in one for one in only(ask(STARVED, models=REPOSITORY), "chat")["breakdown"])


def test_without_the_repository_the_pipeline_is_guessed_from_counts_and_waiting_is_not_split() -> None:
    found = ask(STARVED)
    assert [model["model"] for model in found["models"]] == ["chat"]
    chat = only(found, "chat")
    assert stages(chat)["queue", "preprocessing"] == 100
    assert stages(chat)["postprocess", "postprocessing"] == 2
    assert "StructureInferred" in codes(chat)
    assert chat["bottleneck"]["reason"] == "Unexplained"
    assert "preprocessing, 100 ms" in chat["bottleneck"]["message"]
    assert {one["why"] for one in chat["levers"]} == {
        "how many instances the models have is not known: give --repository"
    }


def test_models_that_do_not_add_up_are_not_made_a_pipeline() -> None:
    found = ask({"a": row(100, 5, 30), "b": row(100, 5, 50)})
    assert {model["model"] for model in found["models"]} == {"a", "b"}
    assert codes(only(found, "a")) == {"StructureUnknown"}


def test_a_p99_is_met_unknown_or_missed_by_what_the_pages_say() -> None:
    def state(quantiles: dict[str, dict[str, float]] | None) -> tuple[str, bool]:
        found = ask(STARVED, models=REPOSITORY, quantiles=quantiles)
        return only(found, "chat")["slo"][0]["state"], missed(found)

    assert state({"chat": {"0.5": 150e3, "0.99": 200e3, "0.999": 250e3}}) == ("met", False)
    assert state({"chat": {"0.5": 200e3, "0.9": 500e3, "0.99": 700e3}}) == ("missed", True)
    assert state({"chat": {"0.5": 200e3, "0.99": 305e3}}) == ("undecided", False), (
        "between 50 and 99 % within"
    )
    assert state(None) == ("unknown", False)


def test_the_p99_of_several_pods_is_a_bound_and_never_a_mean() -> None:
    pairs = [
        Pair(f"pod-{n}", page(nothing(STARVED)), page(STARVED, {"chat": {"0.99": p99}}))
        for n, p99 in enumerate((200e3, 400e3))
    ]
    measured, warnings = measurements(pairs, 60.0)
    found = diagnose(Question(measured, ["pod-0", "pod-1"], models_of(pairs), warnings, REPOSITORY))
    assert only(found, "chat")["p99"] == {
        "ms": 400,
        "source": "nv_inference_request_summary_us",
        "kind": "bound",
    }
    assert only(found, "chat")["rate_rps"] == 40


# --- odd pages --------------------------------------------------------------------------------------------------------


def test_a_counter_that_went_back_makes_its_model_unknown_and_says_so() -> None:
    """A restart between the pages: what happened before it is lost."""
    before = {**nothing(STARVED), "chat": row(5000, 0, 150, latency_ms=262)}
    chat = only(ask(STARVED, before, models=REPOSITORY), "chat")
    assert chat["state"] == "unknown"
    assert chat["rate_rps"] is None
    assert "CounterReset" in codes(chat)


def test_a_counter_that_went_below_zero_is_not_counted_with() -> None:
    """Unsigned 64-bit microseconds: 2^64 − 1000."""
    rows = {**STARVED, "forward": {**STARVED["forward"], "queue": 18446744073709550616}}
    chat = only(ask(rows, models=REPOSITORY), "chat")
    assert "Implausible" in codes(chat)
    assert ("busy_wait", "forward") not in stages(chat)


def test_a_silent_member_under_a_busy_ensemble_is_not_idle_but_unexplained() -> None:
    chat = only(ask({**STARVED, "forward": row(0, 0, 0)}, models=REPOSITORY), "chat")
    assert stages(chat)["unexplained", "chat"] == pytest.approx(132)
    assert chat["bottleneck"]["reason"] != "None"


def test_a_model_that_is_on_the_second_page_only_counts_from_its_load() -> None:
    chat = only(ask(STARVED, {"other": row(1, 0, 1)}, models=REPOSITORY), "chat")
    assert chat["rate_rps"] == 20
    assert "FirstScrape" in codes(chat)


def test_proven_idle_is_idle_and_not_unknown() -> None:
    chat = only(ask(nothing(STARVED), nothing(STARVED), models=REPOSITORY), "chat")
    assert (chat["state"], chat["rate_rps"], chat["mean_latency_ms"]) == ("idle", 0, None)


# --- public reports ---------------------------------------------------------------------------------------------------


def test_a01_the_hand_off_of_a_streaming_model_is_not_its_latency() -> None:
    """3075905 requests in 858150828 us are 279 us each: less than one decoding step of an 8B model."""
    rows = {
        "llama": {"requests": 3075905, "items": 3075905, "executions": 3075905, "latency": 858150828,
                  "queue": 1e6, "input": 0, "infer": 8e8, "output": 0, "pending": 3}
    }  # fmt: skip
    models = {"llama": ModelConfig("llama", ModelSettings(1, 0), decoupled=True, uses_gpu=True)}
    objective = Objective("latency", 0.99, 2.0)
    llama = only(ask(rows, models=models, objectives=(objective,), seconds=3600.0), "llama")
    assert (llama["state"], llama["mean_latency_ms"]) == ("unknown", None)
    assert "MetricsUnreliable" in codes(llama)
    assert llama["slo"][0]["state"] == "unknown"


def test_a03_counters_that_a_flag_froze_are_not_idleness() -> None:
    frozen = {**dict.fromkeys(row(0, 0, 0), 4000.0), "pending": 0.0}
    before = {"m": {**frozen, "summary_count": 4000.0}}
    after = {"m": {**frozen, "summary_count": 4600.0}}
    found = only(ask(after, before, models={"m": ModelConfig("m", ModelSettings(1, 8))}), "m")
    assert (found["state"], found["rate_rps"], found["mean_latency_ms"]) == ("unknown", 10, None)
    assert any("counter_latencies=false" in one["message"] for one in found["warnings"])


def test_a08_an_overloaded_server_does_not_look_idle() -> None:
    """A model of 90 s: nothing finished within 80 s, 38 requests wait."""
    flat = dict.fromkeys(row(0, 0, 0), 700.0)
    before, after = {"m": {**flat, "pending": 30.0}}, {"m": {**flat, "pending": 38.0}}
    models = {"m": ModelConfig("m", ModelSettings(1, 8), uses_gpu=True)}
    found = only(ask(after, before, models=models, seconds=80.0), "m")
    assert (found["state"], found["mean_latency_ms"]) == ("active", None)
    assert found["bottleneck"]["reason"] == "InstanceSaturated"
    assert "38 requests wait" in found["bottleneck"]["message"]


def test_requests_that_have_only_begun_to_wait_are_no_bottleneck() -> None:
    flat = dict.fromkeys(row(0, 0, 0), 700.0)
    before, after = {"m": {**flat, "pending": 0.0}}, {"m": {**flat, "pending": 3.0}}
    models = {"m": ModelConfig("m", ModelSettings(1, 8), uses_gpu=True)}
    found = only(ask(after, before, models=models, seconds=10.0), "m")
    assert (found["state"], found["bottleneck"]) == ("unknown", None)


def test_a08_without_the_gauge_nothing_is_known() -> None:
    flat = {k: 700.0 for k in row(0, 0, 0) if k != "pending"}
    models = {"m": ModelConfig("m", ModelSettings(1, 8), uses_gpu=True)}
    assert only(ask({"m": flat}, {"m": flat}, models=models, seconds=80.0), "m")["state"] == "unknown"


def test_c01_a_streamed_stage_overlaps_and_shares_come_from_the_critical_path() -> None:
    """232 requests of 1.592 s, of which the LLM's row has 99.8 %; 47.6 calls of postprocessing for each request."""
    rows = {
        "ensemble": {"requests": 232, "latency": 369358274, "queue": 0, "infer": 0, "input": 0, "output": 0},
        "tensorrt_llm": {"requests": 232, "latency": 368632046, "queue": 0, "infer": 368632046, "input": 0, "output": 0},
        "preprocessing": {"requests": 232, "latency": 254386, "queue": 25294, "infer": 229092, "input": 0, "output": 0},
        "postprocessing": {"requests": 11041, "latency": 63622688, "queue": 20113756, "infer": 43508932, "input": 0,
                           "output": 0},
    }  # fmt: skip
    found = only(ask(rows, objectives=()), "ensemble")
    assert found["mean_latency_ms"] == pytest.approx(1592, abs=1)
    shares = {(one["stage"], one["model"]): one["share"] for one in found["breakdown"]}
    assert shares["forward", "tensorrt_llm"] == pytest.approx(0.998, abs=1e-3)
    assert shares["preprocess", "preprocessing"] < 0.001
    assert shares["postprocess", "postprocessing"] < 0.002, "its 274 ms per request run beside the generation"
    assert sum(shares.values()) == pytest.approx(1.0)
