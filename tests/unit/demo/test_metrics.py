"""Triton's counters become stages; idle pods and restarts do not become nonsense."""

from __future__ import annotations

import math

import pytest

from demo.metrics import Series, counters, forward_quantile_ms, stage_means_ms
from demo.run_data import Stage

pytestmark = pytest.mark.unit


def page(pod: str, requests: float) -> list[Series]:
    """Counters of one pod after `requests` requests: 25 ms queue and 30 ms compute in preprocessing, 4 and 120 in
    the forward model, 0 and 2 in postprocessing."""
    found = []
    for model, queue, compute in (
        ("preprocessing", 25, 30),
        ("forward-small", 4, 120),
        ("postprocessing", 0, 2),
    ):
        found += [
            Series("nv_inference_request_success", pod, model, "", requests),
            Series("nv_inference_queue_duration_us", pod, model, "", requests * queue * 1000),
            Series("nv_inference_compute_infer_duration_us", pod, model, "", requests * compute * 1000),
        ]
    return found


def test_counters_become_mean_times_per_stage() -> None:
    before, after = counters(page("a", 100) + page("b", 100)), counters(page("a", 300) + page("b", 200))
    assert stage_means_ms(before, after, client_mean_ms=190.0) == {
        Stage.PREPROCESS_WAIT: pytest.approx(25),
        Stage.PREPROCESS: pytest.approx(30),
        Stage.FORWARD_WAIT: pytest.approx(4),
        Stage.FORWARD: pytest.approx(120),
        Stage.POSTPROCESS: pytest.approx(2),
        Stage.OTHER: pytest.approx(9),
    }


def test_a_restarted_pod_counts_from_zero() -> None:
    before, after = counters(page("a", 1000)), counters(page("a", 10))
    assert stage_means_ms(before, after, None)[Stage.FORWARD] == pytest.approx(120)


def test_nothing_served_gives_no_stages() -> None:
    same = counters(page("a", 100))
    assert stage_means_ms(same, same, 100.0) == {}


def test_the_worst_pod_stands_for_a_variant_and_idle_pods_do_not() -> None:
    def summary(pod: str, model: str, quantile: str, value: float) -> Series:
        return Series("nv_inference_compute_infer_summary_us", pod, model, quantile, value)

    seen = [
        summary("a", "forward-small", "0.5", 120_000),
        summary("b", "forward-small", "0.5", 123_000),
        summary("b", "forward-small", "0.99", 140_000),
        summary("a", "forward-large", "0.5", math.nan),
        summary("a", "preprocessing", "0.5", 30_000),
    ]
    assert forward_quantile_ms(seen, "0.5") == {"small": 123.0}
