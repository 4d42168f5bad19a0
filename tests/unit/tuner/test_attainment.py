"""Is the objective met? By the best source there is, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slo_tuner.attainment import bucket_quantile, judge
from slo_tuner.decision import ObjectiveState, SLOState
from slo_tuner.diagnosis.rows import model_times
from slo_tuner.objectives import Objective
from slo_tuner.snapshot import GatewayHistogram, RequestTrace, ServerView
from slo_tuner.stats import chance_below
from tests.unit.tuner.builders import PIPELINE, histogram, pod, row, server

P99 = Objective("latency", 0.99, 0.3)


def judged(view: ServerView, objective: Objective = P99) -> ObjectiveState:
    return judge(view, PIPELINE, objective, model_times(view, "chat"))


def test_a_bucket_at_the_target_counts_exactly() -> None:
    state = judged(server(gateway=(histogram(4_990, 5_000),)))
    assert state.state is SLOState.MET
    assert state.attainment == pytest.approx(0.998)
    assert state.source == "gateway histogram"


def test_clearly_too_many_misses_are_missed() -> None:
    state = judged(server(gateway=(histogram(4_500, 5_000),)))
    assert state.state is SLOState.MISSED
    # rank 4,950 lies 450/500 of the way through the bucket 0.3 … 0.6
    assert state.observed_s == pytest.approx(0.57)


def test_a_well_tuned_service_at_99_2_percent_is_undecided_and_says_between_what() -> None:
    state = judged(server(gateway=(histogram(992, 1_000),)))
    assert state.state is SLOState.UNDECIDED
    assert state.interval is not None
    assert state.interval[0] < 0.99 < state.interval[1]
    assert "95 %" in state.message


def test_failures_are_misses() -> None:
    answered = replace(histogram(5_000, 5_000), failures=200.0)
    state = judged(server(gateway=(answered,)))
    assert state.attainment == pytest.approx(5_000 / 5_200)
    assert state.state is SLOState.MISSED


def test_without_a_bound_at_the_target_attainment_is_an_interval() -> None:
    buckets = ((0.25, 900.0), (0.5, 1000.0), (math.inf, 1000.0))
    state = judged(server(gateway=(GatewayHistogram("chat", 60.0, buckets, 0.0, "gateway"),)))
    assert state.interval is not None
    assert state.interval[0] < 0.9 < state.interval[1]
    assert state.state is SLOState.UNDECIDED


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert bucket_quantile(((1.0, 50.0), (math.inf, 100.0)), 100.0, 0.99) == 1.0


@pytest.mark.parametrize(
    "buckets",
    [
        ((0.3, 2.14), (math.inf, 0.0)),  # a lagging +Inf bucket
        ((0.3, float("nan")), (math.inf, 100.0)),
        ((0.3, 500.0), (0.6, 400.0), (math.inf, 500.0)),
        ((0.3, 500.0),),
    ],
)
def test_broken_histograms_are_not_evidence(buckets: tuple[tuple[float, float], ...]) -> None:
    """F01: non-monotone, NaN, or without +Inf."""
    state = judged(server(gateway=(GatewayHistogram("chat", 60.0, buckets, 0.0, "gateway"),)))
    assert state.state is SLOState.NOT_MEASURABLE


def test_a_p99_from_twelve_requests_is_not_a_p99() -> None:
    assert judged(server(gateway=(histogram(12, 12),))).state is SLOState.NOT_MEASURABLE


def test_traces_count_exactly() -> None:
    traces = tuple(RequestTrace("a", "chat", 900.0 + i / 50, 0.2 if i % 10 else 0.4, {}) for i in range(2000))
    state = judged(server(gateway=(), traces=traces))
    assert state.attainment == pytest.approx(0.9)
    assert state.observed_s == pytest.approx(0.4)
    assert state.source == "request traces"


def test_quantiles_of_pods_are_never_averaged() -> None:
    """F04: pod a 900 rps with a p99 of 40 ms, pod b 10 rps with 900 ms: a bound of 900 ms by the worst pod, and its
    share of 1 %; never 470 ms."""
    rows = (
        row("a", "chat", 54_000, 0, 0, 0.02, quantiles={0.5: 0.02, 0.99: 0.04, 0.999: 0.05}),
        row("b", "chat", 600, 0, 0, 0.4, quantiles={0.5: 0.3, 0.99: 0.9, 0.999: 1.0}),
    )
    state = judged(server(gateway=(), rows=rows))
    assert state.observed_s == 0.9
    assert "worst pod b with 1%" in state.source
    # within 300 ms: at least 99.9 % of a and half of b
    assert state.state is SLOState.MET


def test_nan_summaries_are_no_number() -> None:
    rows = tuple(row(p, "chat", 600, 0, 0, 0.2, quantiles={0.5: 0.2, 0.99: math.nan}) for p in ("a", "b"))
    assert judged(server(gateway=(), rows=rows)).state is SLOState.NOT_MEASURABLE


def test_means_alone_do_not_carry_a_quantile_but_carry_a_mean() -> None:
    view = server(gateway=(), pods=(pod("a"),), rows=(row("a", "chat", 600, 0, 0, 0.2),))
    assert judged(view).state is SLOState.NOT_MEASURABLE
    assert judged(view, Objective("latency", None, 0.25)).state is SLOState.MET
    assert judged(view, Objective("latency", None, 0.15)).state is SLOState.MISSED


@pytest.mark.parametrize(("within", "total"), [(2.0**52, 2.0**52), (0.0, 2.0**52), (-5.0, 10.0)])
def test_counts_that_no_server_reaches_do_not_break_the_judgement(within: float, total: float) -> None:
    assert 0.0 <= chance_below(0.99, within, total) <= 1.0
