"""Counters to times to one bottleneck: worked values, and public cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_tuner.assess import assess
from slo_tuner.decision import BottleneckReason, SLOState
from slo_tuner.diagnosis.breakdown import breakdown, split_queue
from slo_tuner.diagnosis.graph import critical_path
from slo_tuner.diagnosis.rows import ModelTimes, model_times
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.signal import Idle, Unknown, Value
from slo_tuner.snapshot import (
    NOT_OBSERVED,
    BatchTime,
    EnsembleStep,
    ModelConfig,
    ModelRow,
    RequestTrace,
    ServerView,
    StageTime,
)
from tests.unit.tuner.builders import (
    PIPELINE,
    POOL,
    SETTINGS,
    calm_rows,
    configs,
    histogram,
    pod,
    row,
    server,
    starved_rows,
)


def times_of(view: ServerView, model: str) -> ModelTimes:
    found = model_times(view, model)
    assert isinstance(found, ModelTimes), found
    return found


def picture(view: ServerView, now: float = 1000.0):  # type: ignore[no-untyped-def]
    return assess(view, POOL, ServerMemory(), Policy(), SETTINGS, now)


def us(pod_name: str, model: str, n: float, request: float, queue: float) -> ModelRow:
    """A row from microsecond counters, compute = request − queue."""
    return row(
        pod_name, model, n, queue / 1e6 / n, (request - queue) / 1e6 / n, request / 1e6 / n, window_s=3600.0
    )


class TestPublicCases:
    def test_a_streamed_ensemble_is_not_the_sum_of_its_members(self) -> None:
        """C01: 232 requests; e2e 1.592 s, preprocessing 1.10 ms, LLM 1.589 s, postprocessing 47.6 calls per request."""
        models = {
            "ensemble": ModelConfig(
                "ensemble",
                ModelSettings(1, 4),
                steps=(
                    EnsembleStep("preprocessing", ("T",), ("IDS",)),
                    EnsembleStep("tensorrt_llm", ("IDS",), ("OUT",)),
                    EnsembleStep("postprocessing", ("OUT",), ("TEXT",)),
                ),
            ),
            "preprocessing": ModelConfig("preprocessing", ModelSettings(1, 4)),
            "tensorrt_llm": ModelConfig("tensorrt_llm", ModelSettings(1, 64), uses_gpu=True, decoupled=True),
            "postprocessing": ModelConfig("postprocessing", ModelSettings(1, 4)),
        }
        rows = (
            us("a", "ensemble", 232, 369_358_274, 0),
            us("a", "tensorrt_llm", 232, 368_632_046, 0),
            us("a", "preprocessing", 232, 254_386, 25_294),
            us("a", "postprocessing", 11_041, 63_622_688, 20_113_756),
        )
        llm = replace(PIPELINE, model="ensemble", forward=("tensorrt_llm",))
        view = server(pods=(pod("a"),), models=models, rows=rows, pipelines=(llm,), gateway=())
        post = times_of(view, "postprocessing")
        assert post.latency_s == pytest.approx(0.00576, abs=1e-5)
        assert post.queue_s == pytest.approx(0.00182, abs=1e-5)
        found = breakdown(view, llm, {m: model_times(view, m) for m in models})
        assert found is not None
        assert found.mean_s == pytest.approx(1.592, abs=1e-3)
        by_model = {s.model: s for s in found.stages if s.kind in ("preprocess", "forward", "postprocess")}
        assert by_model["tensorrt_llm"].share == pytest.approx(0.998, abs=1e-3)
        assert by_model["postprocessing"].mean_s < 0.00576, "all but the last call overlap the generation"

    @pytest.mark.parametrize(("busy", "waiting"), [(1.0, 0.082), (0.0, 0.002)])
    def test_a_queue_is_split_by_how_busy_the_instances_are(self, busy: float, waiting: float) -> None:
        """C01 run both ways: 82 ms of queue with a delay of 80 ms is all busy wait at saturation, all delay when free."""
        settings = ModelSettings(1, 16, Batching(80_000))
        split = split_queue(0.082, settings, busy)
        assert split.busy_wait_s == pytest.approx(waiting)
        assert split.delay_bounds_s == (0.0, 0.080)

    def test_with_a_cache_compute_is_divided_by_what_was_computed(self) -> None:
        """A04: 621,327 requests queued, 436,988 computed: 29.7 % came from the cache."""
        r = replace(
            row("a", "forward", 621_327, 0.001, 0.0),
            computed=Value(436_988.0),
            compute_infer_s=Value(43_698.8),
        )
        times = times_of(server(pods=(pod("a"),), rows=(replace(r, window_s=86_400.0),)), "forward")
        assert times.hit_share == pytest.approx(0.297, abs=5e-4)
        assert times.infer_s == pytest.approx(0.1)
        assert times.queue_s == pytest.approx(0.001)

    def test_an_overloaded_server_is_not_idle(self) -> None:
        """A08: for 80 s nothing finishes while 38 wait; without the gauge it is unknown, never idle."""
        quiet = row("a", "forward", 0.0, window_s=80.0, pending=Value(38.0))
        view = server(pods=(pod("a"),), rows=(quiet,))
        times = times_of(view, "forward")
        assert (times.busy, times.pending) == (1.0, 38.0)
        blind = server(pods=(pod("a"),), rows=(replace(quiet, pending=NOT_OBSERVED),))
        assert isinstance(model_times(blind, "forward"), Unknown)

    def test_requests_that_have_only_begun_to_wait_are_not_stuck(self) -> None:
        """Load began a moment ago: three wait, none has finished, and at the window's beginning none waited."""
        begun = row("a", "forward", 0.0, pending=Value(3.0), waited=Value(0.0))
        times = model_times(server(pods=(pod("a"),), rows=(begun,)), "forward")
        assert isinstance(times, Unknown)
        assert "3 have begun to wait" in times.reason

    def test_a_handoff_is_not_a_latency(self) -> None:
        """A01: 3,075,905 decoupled requests in 858 s of request time: 279 µs each is the hand-off."""
        config = replace(configs()["forward"], decoupled=True)
        r = us("a", "forward", 3_075_905, 858_150_828, 0)
        view = server(pods=(pod("a"),), rows=(r,), models={**configs(), "forward": config})
        found = model_times(view, "forward")
        assert isinstance(found, Unknown)
        assert "hand-off" in found.reason

    def test_series_of_dead_pods_do_not_count_and_a_missing_pod_is_told(self) -> None:
        """D05: live pods a and b; series of a and of c, which is gone."""
        view = server(rows=(*calm_rows("a"), *calm_rows("c", 9000.0)))
        times = times_of(view, "forward")
        assert times.requests == 600
        assert not times.complete
        assert not picture(view).assessment.metrics_available

    def test_the_two_batch_means_differ(self) -> None:
        """B04: 18,000 requests of 256 items in 180 executions: 100 requests, 25,600 items each."""
        r = replace(
            row("a", "forward", 18_000, compute_s=0.001),
            executions=Value(180.0),
            inferences=Value(18_000 * 256.0),
        )
        times = times_of(server(pods=(pod("a"),), rows=(r,)), "forward")
        assert times.batch_requests == 100
        assert times.batch_items == 25_600

    def test_a_slow_request_with_an_empty_queue_is_infeasible_by_replicas(self) -> None:
        """D03 B: 216 ms of service, 2 ms of queue, target 200 ms."""
        tight = replace(PIPELINE, objectives=(replace(PIPELINE.objectives[0], target_s=0.2),))
        rows = tuple(
            r
            for p in ("a", "b")
            for r in (
                row(p, "preprocessing", 120, 0.001, 0.014),
                row(p, "forward", 120, 0.001, 0.200),
                row(p, "postprocessing", 120, 0.0, 0.002),
                row(p, "chat", 120, 0.0, 0.0, latency_s=0.218),
            )
        )
        view = server(
            rows=rows,
            pipelines=(tight,),
            gateway=(histogram(0, 240, 0.2),),
            arrivals_rps={"chat": Value(4.0)},
        )
        found = picture(view).assessment.bottleneck
        assert found is not None
        assert found.reason is BottleneckReason.SLO_INFEASIBLE

    def test_a_ratio_of_queue_to_compute_is_no_reason_to_act(self) -> None:
        """D10 night: queue 90 µs, compute 60 µs, p99 1 ms: nothing is missed, so nothing is the bottleneck."""
        rows = tuple(
            r
            for p in ("a", "b")
            for r in (
                row(p, "preprocessing", 60, 0.00001, 0.0001),
                row(p, "forward", 60, 0.00009, 0.00006),
                row(p, "postprocessing", 60, 0.0, 0.0001),
                row(p, "chat", 60, 0.0, 0.0, latency_s=0.0005),
            )
        )
        found = picture(server(rows=rows, gateway=(histogram(1200, 1200),))).assessment.bottleneck
        assert found is not None
        assert found.reason is BottleneckReason.NONE


class TestReferenceScenario:
    def test_one_process_of_28_ms_at_20_rps_is_starved_in_bursts(self) -> None:
        seen = picture(server()).assessment
        assert seen.bottleneck is not None
        assert seen.bottleneck.reason is BottleneckReason.PREPROCESS_STARVED
        evidence = seen.bottleneck.evidence
        # 20 rps × 28 ms = 0.56 busy on average; 1.5 × that in bursts when their height is not known
        assert evidence["busy_at_peak"] == pytest.approx(0.84, abs=0.01)
        assert evidence["wait_ms"] == 100
        assert evidence["forward_ms"] == 120
        assert evidence["gpu_busy"] == 0.3

    def test_traces_give_the_time_outside_the_gpu_exactly(self) -> None:
        stages = {
            "preprocessing": StageTime(0.5, 0.028),
            "forward": StageTime(0.05, 0.12),
            "postprocessing": StageTime(0, 0.002),
        }
        traces = tuple(RequestTrace("a", "chat", 900.0 + i / 10, 0.7, stages) for i in range(200))
        found = picture(server(traces=traces)).assessment.breakdowns[0]
        assert found.forward_p99_s == pytest.approx(0.12)
        assert found.outside_gpu_s == pytest.approx(0.58)

    def test_with_batching_off_and_busy_instances_batching_is_named(self) -> None:
        rows = tuple(
            r
            for p in ("a", "b")
            for r in (
                row(p, "preprocessing", 1200, 0.001, 0.010),
                row(p, "forward", 1200, 0.150, 0.120),
                row(p, "postprocessing", 1200, 0.0, 0.002),
                row(p, "chat", 1200, 0.0, 0.0, latency_s=0.285),
            )
        )
        # 20 rps × 120 ms ÷ 4 instances = 0.6; × 1.5 = 0.9 in bursts
        found = picture(server(rows=rows, gateway=(histogram(2200, 2400),))).assessment.bottleneck
        assert found is not None
        assert found.reason is BottleneckReason.BATCHING_OFF
        assert found.evidence["busy_at_peak"] == pytest.approx(0.9, abs=0.02)

    def test_one_pod_with_most_of_the_traffic_is_an_imbalance(self) -> None:
        rows = (*starved_rows("a", 1800.0), *calm_rows("b", 300.0))
        found = picture(server(rows=rows)).assessment.bottleneck
        assert found is not None
        assert found.reason is BottleneckReason.LOAD_IMBALANCED
        assert found.evidence["largest_share"] == pytest.approx(0.86)


class TestPlausibility:
    def test_busy_share_comes_from_executions_not_requests(self) -> None:
        """100 batches of 1 (100 ms) and 100 of 16 (200 ms) in 60 s on 4 instances: (10 + 20) / 240 = 0.125."""
        batches = (BatchTime(1, 100, 0.1), BatchTime(16, 100, 0.2))
        view = server(pods=(pod("a"),), rows=(row("a", "forward", 1700, compute_s=0.194, batches=batches),))
        times = times_of(view, "forward")
        assert times.busy == pytest.approx(0.125)
        assert times.exact_busy

    def test_more_compute_than_the_machine_has_is_unknown(self) -> None:
        # 16 × 2 slots in 60 s can compute 1,920 s of requests; 10,000 is a broken counter
        view = server(pods=(pod("a"),), rows=(row("a", "forward", 1200, compute_s=10_000 / 1200),))
        assert isinstance(model_times(view, "forward"), Unknown)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
    def test_impossible_numbers_are_unknown(self, bad: float) -> None:
        r = replace(row("a", "forward"), queue_s=Value(bad))
        assert isinstance(model_times(server(pods=(pod("a"),), rows=(r,)), "forward"), Unknown)

    def test_a_silent_member_under_a_busy_ensemble_is_doubted(self) -> None:
        rows = tuple(
            r for p in ("a", "b") for r in (*calm_rows(p)[:1], row(p, "forward", 0.0), *calm_rows(p)[2:])
        )
        seen = picture(server(rows=rows))
        assert isinstance(seen.context.times["forward"], Unknown)
        assert isinstance(seen.context.model, str)

    def test_flat_counters_with_nothing_pending_are_idle(self) -> None:
        rows = tuple(row(p, m, 0.0) for p in ("a", "b") for m in SETTINGS)
        seen = picture(server(rows=rows, gateway=()))
        assert isinstance(seen.context.times["chat"], Idle)
        assert seen.idle
        assert seen.assessment.objectives[0].state is SLOState.IDLE


def test_parallel_branches_join_by_the_longest() -> None:
    steps = (
        EnsembleStep("image", ("IN",), ("A",)),
        EnsembleStep("text", ("IN2",), ("B",)),
        EnsembleStep("fuse", ("A", "B"), ("OUT",)),
    )
    path = critical_path(steps, {"image": 0.1, "text": 0.3, "fuse": 0.05}, {})
    assert [s.model for s in path] == ["text", "fuse"]


def test_a_cycle_does_not_hang() -> None:
    steps = (EnsembleStep("a", ("X",), ("Y",)), EnsembleStep("b", ("Y",), ("X",)))
    assert {s.model for s in critical_path(steps, {"a": 1.0, "b": 1.0}, {})} == {"a", "b"}


seconds = st.floats(0.0, 2.0)


@given(
    pre=seconds,
    wait=seconds,
    forward=st.floats(0.001, 2.0),
    top=st.floats(0.001, 5.0),
    delay=st.integers(0, 10_000),
)
def test_a_breakdown_always_adds_up(pre: float, wait: float, forward: float, top: float, delay: int) -> None:
    settings = {**SETTINGS, "forward": ModelSettings(2, 16, Batching(delay) if delay else None)}
    rows = (
        row("a", "preprocessing", 60, 0.0, pre),
        row("a", "forward", 60, wait, forward),
        row("a", "chat", 60, 0.0, 0.0, latency_s=top),
    )
    view = server(pods=(pod("a"),), rows=rows, models=configs(settings))
    found = breakdown(view, PIPELINE, {m: model_times(view, m) for m in settings})
    assert found is not None
    assert sum(s.mean_s for s in found.stages) == pytest.approx(found.mean_s, rel=1e-9)
    assert sum(s.share for s in found.stages) == pytest.approx(1.0, rel=1e-9)
    assert all(s.mean_s >= 0 for s in found.stages)
    for s in found.stages:
        if s.low_s is not None and s.high_s is not None:
            assert delay > 0
            assert s.kind in ("batching_delay", "busy_wait")
            assert s.model == "forward"
            assert -1e-12 <= s.low_s <= s.mean_s + 1e-12
            assert s.mean_s <= s.high_s + 1e-12
            assert s.high_s <= found.mean_s * (1 + 1e-9)


def test_the_parts_of_a_queue_carry_the_bounds_of_what_a_delay_can_have_cost() -> None:
    """20 ms of queue with a delay of 5 ms: 0-5 ms of it are the delay, 15-20 ms a busy instance."""
    settings = {**SETTINGS, "forward": ModelSettings(4, 16, Batching(5_000))}
    rows = (
        row("a", "preprocessing", 60, 0.004, 0.028),
        row("a", "forward", 60, 0.020, 0.120),
        row("a", "chat", 60, 0.0, 0.0, latency_s=0.180),
    )
    view = server(pods=(pod("a"),), rows=rows, models=configs(settings))
    found = breakdown(view, PIPELINE, {m: model_times(view, m) for m in settings})
    assert found is not None
    bounds = {(s.kind, s.model): (s.low_s, s.high_s) for s in found.stages}
    assert bounds["batching_delay", "forward"] == pytest.approx((0.0, 0.005))
    assert bounds["busy_wait", "forward"] == pytest.approx((0.015, 0.020))
    assert bounds["busy_wait", "preprocessing"] == (None, None), "without a delay it is measured"
    assert bounds["forward", "forward"] == (None, None)


def test_bounds_shrink_with_the_stages_where_members_are_shared_and_sum_to_more_than_the_whole() -> None:
    """140 ms of a shared forward model within 70 ms: everything is halved."""
    settings = {**SETTINGS, "forward": ModelSettings(4, 16, Batching(5_000))}
    rows = (row("a", "forward", 60, 0.020, 0.120), row("a", "chat", 60, 0.0, 0.0, latency_s=0.070))
    view = server(pods=(pod("a"),), rows=rows, models=configs(settings))
    found = breakdown(view, PIPELINE, {m: model_times(view, m) for m in settings})
    assert found is not None
    bounds = {s.kind: (s.low_s, s.high_s) for s in found.stages}
    assert bounds["batching_delay"] == pytest.approx((0.0, 0.0025))
    assert bounds["busy_wait"] == pytest.approx((0.0075, 0.010))
