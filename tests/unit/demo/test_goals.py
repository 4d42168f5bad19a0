"""The goals' arithmetic, with values worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import goals
from demo.run_data import Decision, Run, Sample, Window, WindowName
from devcluster.gateway.records import Record
from tests.unit.demo import synthetic

pytestmark = pytest.mark.unit


def request(at: float, latency_ms: float, model: str = "assistant-small", status: int = 200) -> Record:
    return Record(0, "load", model, at, at, latency_ms / 1000, status, "10.0.0.4:8000")


def every_100_ms(seconds: int, latency_ms: float, begin: float = 0.0) -> list[Record]:
    return [request(begin + number / 10, latency_ms) for number in range(seconds * 10)]


def test_p99_of_1_to_200_ms_is_198() -> None:
    # nearest rank: 0.99 × 200 = 198th smallest
    assert goals.quantile_ms([request(0, value) for value in range(1, 201)], 0.99) == pytest.approx(198)


def test_a_quantile_of_nothing_is_unknown() -> None:
    assert goals.quantile_ms([], 0.99) is None


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_covers_its_share_and_no_smaller_latency_does(values: list[int], share: float) -> None:
    found = goals.quantile_ms([request(0, value) for value in values], share)
    assert found is not None
    assert sum(value <= found + 1e-6 for value in values) >= share * len(values) - 1e-6
    assert sum(value < found - 1e-6 for value in values) < share * len(values)


def test_a_failure_counts_as_the_time_limit_however_fast_it_came() -> None:
    records = [request(0, 100)] * 98 + [request(0, 3, status=503)] * 2
    assert goals.quantile_ms(records, 0.99) == 10_000


def test_the_worst_variant_is_the_one_with_the_highest_p99() -> None:
    records = [request(0, 100, "a")] * 1000 + [request(0, 280, "b")] * 5
    assert goals.quantile_ms(records, 0.99) == pytest.approx(100)
    assert goals.worst_variant_ms(records) == pytest.approx(280)


def test_late_sends_are_told_apart_from_the_servers_latency() -> None:
    records = [replace(request(0, 500), sent=number / 1000) for number in range(1, 101)]
    assert goals.send_lateness_ms(records) == pytest.approx(99)
    assert goals.send_lateness_ms([]) is None


def test_requests_belong_to_the_window_in_which_they_were_due() -> None:
    records = [request(9.999, 1), request(10, 2), request(19.999, 3), request(20, 4)]
    assert [r.latency_s for r in goals.within(records, Window(10, 20))] == [0.002, 0.003]


def test_the_slo_is_met_at_the_end_of_the_first_60_s_that_the_next_60_confirm() -> None:
    # 100 s too slow, then good: the first good window is [100, 160), and [160, 220) confirms it. Up to 1 % of the 600
    # requests of a window, 6, may be slow: those of 0.6 s. So the window may begin at 100 s, but not at 99 s (10 slow).
    records = every_100_ms(100, 400) + every_100_ms(200, 200, begin=100)
    assert goals.seconds_to_slo_met(records, 0, 300) == 160


def test_a_good_minute_that_the_next_does_not_confirm_does_not_count() -> None:
    records = every_100_ms(80, 200) + every_100_ms(60, 400, begin=80) + every_100_ms(160, 200, begin=140)
    # Good windows within the first 80 s end by 80 s, but what follows them is slow; the next begins at 140 s.
    assert goals.seconds_to_slo_met(records, 0, 300) == 200


def test_the_slo_is_not_met_before_the_confirming_minute_has_passed() -> None:
    records = every_100_ms(119, 200)
    assert goals.seconds_to_slo_met(records, 0, 119) is None
    assert goals.seconds_to_slo_met(every_100_ms(120, 200), 0, 120) == 60


def test_a_silent_minute_is_not_a_good_one() -> None:
    assert goals.seconds_to_slo_met([], 0, 300) is None


def sample(at: float, **figures: object) -> Sample:
    return replace(Sample(time=at, phase="baseline"), **figures)  # type: ignore[arg-type]


def test_the_forward_median_is_of_the_worst_pod_and_variant() -> None:
    samples = [sample(1, forward_p50_ms={"small": 119.0, "large": worst}) for worst in (120.0, 121.0, 125.0)]
    assert goals.forward_p50_ms(samples) == 121.0
    assert goals.forward_p50_ms([sample(1)]) is None


def test_time_outside_the_gpu_is_that_of_the_variant_with_most() -> None:
    records = [request(0, 700, "assistant-small"), request(0, 650, "assistant-large")]
    samples = [sample(1, forward_p99_ms={"small": 125.0, "large": 121.0})]
    assert goals.outside_gpu_ms(records, samples) == pytest.approx(575)


def test_gpus_are_the_most_at_any_moment_of_the_phase() -> None:
    samples = [sample(0, gpus=9), sample(10, gpus=4), sample(20, gpus=6)]
    assert goals.max_gpus(samples, 10, 20) == 6


def test_the_first_bottleneck_is_the_first_that_was_named() -> None:
    assert goals.first_bottleneck([(1, "None"), (2, "PreprocessStarved"), (3, "None")]) == "PreprocessStarved"
    assert goals.first_bottleneck([]) is None


def test_levers_count_once_in_the_order_in_which_they_were_kept() -> None:
    def decided(at: float, reason: str, lever: str) -> Decision:
        return Decision(at, reason, "", lever=lever)

    seen = [
        decided(5, "Promoted", "batching"),
        decided(1, "CanaryStarted", "batching"),
        decided(2, "CanaryRestored", "replicas"),
        decided(3, "Promoted", "preprocess"),
        decided(9, "Promoted", "preprocess"),
        decided(10, "Promoted", "instances"),
        decided(11, "RolledBack", "instances"),
    ]
    assert goals.levers_used(seen) == ("preprocess", "batching")


def test_every_goal_of_a_good_run_holds() -> None:
    assert [one.goal.key for one in goals.results(goals.figures(synthetic.run())) if not one.met] == []


GOOD = synthetic.run()


def measured_at(name: WindowName, start: float) -> Run:
    """The good run, with a window's figures taken from 120 s at another time."""
    window = Window(synthetic.BEGIN + start, synthetic.BEGIN + start + 120)
    return replace(GOOD, windows={**GOOD.windows, name: window})


def seen_differently(before: float = synthetic.END, **figures: object) -> Run:
    """The good run, with other figures in every sample before a time."""
    samples = (
        replace(one, **figures) if one.time < synthetic.BEGIN + before else one  # type: ignore[arg-type]
        for one in GOOD.samples
    )
    return replace(GOOD, samples=tuple(samples))


SLOW = [request(synthetic.BEGIN + 520 + n / 10, 900) for n in range(100)]
SPOILED: Sequence[tuple[str, Run]] = [
    ("tuned.p99_ms", replace(GOOD, records=(*GOOD.records, *SLOW))),
    ("cpu.before", seen_differently(before=synthetic.AUTO, cpu=0.6)),
    ("cpu.after", seen_differently(cpu=0.9)),
    ("pool.replicas", seen_differently(pool_replicas=5)),
    ("pool.network_ms", seen_differently(pool_network_ms=11.0)),
    ("doubled.rate_rps", measured_at(WindowName.DOUBLED, 440)),
    ("doubled.settle_seconds", replace(GOOD, settle_seconds=301.0)),
    ("doubled.gpus", replace(GOOD, samples=(*GOOD.samples, sample(synthetic.BEGIN + 700, gpus=6)))),
    ("failed_requests", replace(GOOD, records=(*GOOD.records, request(0, 5, status=503)))),
    ("mig_actions", replace(GOOD, mig_actions=1)),
    ("seconds_to_slo_met", replace(GOOD, auto_at=None)),
    ("diagnosis.first_bottleneck", replace(GOOD, bottlenecks=((1.0, "BatchingOff"),))),
]


@pytest.mark.parametrize(("key", "spoiled"), SPOILED, ids=[key for key, _ in SPOILED])
def test_a_spoiled_run_misses_exactly_its_goal(key: str, spoiled: Run) -> None:
    assert [one.goal.key for one in goals.results(goals.figures(spoiled)) if not one.met] == [key]


def test_a_run_that_never_began_misses_every_measured_goal() -> None:
    empty = Run("job1", 0, 1, synthetic.run().machine)
    met = {one.goal.key for one in goals.results(goals.figures(empty)) if one.met}
    assert met == {"failed_requests", "mig_actions"}


@pytest.mark.parametrize(
    ("measured", "holds"),
    [(599.9, False), (600, True), (1200, True), (1200.1, False), (None, False), ("x", False)],
)
def test_bounds_include_their_ends(measured: float | str | None, holds: bool) -> None:
    goal = next(goal for goal in goals.GOALS if goal.key == "baseline.p99_ms")
    assert goal.holds(measured) is holds
    assert goal.wanted == "600–1,200"
