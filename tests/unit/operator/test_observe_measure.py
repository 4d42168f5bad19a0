"""Numbers from Prometheus: what passes, what is unknown, and why."""

from __future__ import annotations

import math

import pytest

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe import catalogue
from slo_operator.observe.gateway import read_gateway
from slo_operator.observe.live import LivePod, batch_times
from slo_operator.observe.measure import Scope, measure, next_window
from slo_operator.observe.measured import Coverage, Field, Measurements
from slo_operator.observe.prometheus import Prometheus, PrometheusError, RawSeries, Sample
from slo_operator.observe.rows import model_row
from slo_operator.observe.triton import BatchStat, Statistics
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Idle, Unknown, Value
from slo_tuner.snapshot import BatchTime, EnsembleStep, ModelConfig, ModelRow
from tests.unit.operator.fake_prometheus import FakePrometheus, Load

NOW = 1_800_000_000.0
SCOPE = Scope(("serving",), ("m",))
MODEL = ModelConfig("m", ModelSettings(1, 8))
KEY = ("serving", "p")
GOOD = Coverage(interval_s=5.0, window_s=60.0, age_s=2.0, samples=12)


def measured(fields: dict[Field, float], cover: Coverage | None = GOOD) -> Measurements:
    rows = {(*KEY, "m"): fields}
    return Measurements(NOW, 60.0, rows=rows, coverage={KEY: cover} if cover else {})


def row(fields: dict[Field, float], cover: Coverage | None = GOOD):  # type: ignore[no-untyped-def]
    return model_row(measured(fields, cover), "serving", "p", MODEL, {"m": MODEL}, None)


QUIET = {Field.REQUESTS: 0.0, Field.FAILURES: 0.0, Field.PENDING: 0.0}


def test_flat_counters_with_fresh_scrapes_and_nothing_pending_are_proven_idle() -> None:
    assert isinstance(row(QUIET).requests, Idle)


def test_flat_counters_with_requests_waiting_are_an_overloaded_server() -> None:
    stuck = row(QUIET | {Field.PENDING: 38.0, Field.PENDING_LEAST: 30.0})
    assert stuck.requests == Value(0.0, 2.0, "Prometheus: nv_inference_*")
    assert isinstance(stuck.pending, Value)
    assert stuck.pending.value == 38.0
    assert isinstance(stuck.waited, Value)
    assert stuck.waited.value == 30.0


def test_flat_counters_without_the_pending_gauge_prove_nothing() -> None:
    silent = row({Field.REQUESTS: 0.0, Field.FAILURES: 0.0})
    assert not isinstance(silent.requests, Idle)
    assert isinstance(silent.pending, Unknown)


@pytest.mark.parametrize(
    ("cover", "why"),
    [
        (None, "no series of this pod"),
        (Coverage(5.0, 10.0, 2.0, 3), "only 3 samples"),
        (Coverage(5.0, 60.0, 90.0, 12), "90 s old"),
    ],
)
def test_missing_sparse_and_stale_series_are_unknown_never_zero(cover: Coverage | None, why: str) -> None:
    seen = row(QUIET, cover)
    assert isinstance(seen.requests, Unknown)
    assert why in seen.requests.reason


def test_counters_that_were_switched_off_are_replaced_by_the_summarys_count() -> None:
    # counter_latencies=false freezes every counter; the request summary went from 4000 to 4600
    frozen = row(QUIET | {Field.SUMMARY_COUNT: 600.0})
    assert isinstance(frozen.requests, Value)
    assert frozen.requests.value == 600.0
    assert isinstance(frozen.queue_s, Unknown)
    assert "counter_latencies" in frozen.queue_s.reason


def test_an_ensemble_without_a_gauge_waits_where_its_members_wait() -> None:
    ensemble = ModelConfig("e", ModelSettings(1, 8), steps=(EnsembleStep("m", ("a",), ("b",)),))
    m = Measurements(
        NOW,
        60.0,
        rows={(*KEY, "e"): {Field.REQUESTS: 0.0, Field.FAILURES: 0.0}, (*KEY, "m"): {Field.PENDING: 0.0}},
        coverage={KEY: GOOD},
    )
    idle = model_row(m, "serving", "p", ensemble, {"e": ensemble, "m": MODEL}, None)
    assert isinstance(idle.requests, Idle)


SHARED = {
    name: ModelConfig(
        name, ModelSettings(1, 8), steps=tuple(EnsembleStep(m, ("a",), ("b",)) for m in members)
    )
    for name, members in {"rare": ("m", "rare-forward"), "m": (), "rare-forward": ()}.items()
}


def rare(shared: dict[Field, float], own: dict[Field, float]) -> ModelRow:
    """An ensemble that finished nothing, of a stage that it shares with a busy one and one of its own."""
    rows = {
        (*KEY, "rare"): {Field.REQUESTS: 0.0, Field.FAILURES: 0.0},
        (*KEY, "m"): shared,
        (*KEY, "rare-forward"): own,
    }
    m = Measurements(NOW, 60.0, rows=rows, coverage={KEY: GOOD})
    return model_row(m, "serving", "p", SHARED["rare"], SHARED, None)


FLOWING = {Field.REQUESTS: 500.0, Field.PENDING: 4.0, Field.PENDING_LEAST: 1.0}
HELD = {Field.REQUESTS: 0.0, Field.PENDING: 4.0, Field.PENDING_LEAST: 1.0}
NOBODY = {Field.REQUESTS: 0.0, Field.PENDING: 0.0, Field.PENDING_LEAST: 0.0}


def test_an_ensemble_without_requests_beside_a_busy_one_with_a_common_stage_is_idle() -> None:
    assert isinstance(rare(FLOWING, NOBODY).requests, Idle)


def test_an_ensemble_whose_own_or_common_stage_stands_still_is_stuck_there() -> None:
    for stuck in (rare(FLOWING, HELD), rare(HELD, NOBODY)):
        assert isinstance(stuck.requests, Value)
        assert (stuck.pending, stuck.waited) == (
            Value(4.0, source="pending of the members"),
            Value(1.0, source="pending of the members"),
        )


def test_batches_are_scaled_to_the_rows_window() -> None:
    live = LivePod(batches={"m": ((BatchTime(4, 10, 0.13),), 30.0)})
    seen = model_row(measured({}), "serving", "p", MODEL, {"m": MODEL}, live)
    assert seen.batches == (BatchTime(4, 20, 0.13),)


def test_statistics_that_start_anew_after_a_reload_count_from_there() -> None:
    from collections import deque

    def at(t: float, count: int, seconds: float) -> tuple[float, Statistics]:
        return t, {"m": {1: BatchStat(count, seconds)}}

    history = deque([at(0, 100, 12.0), at(5, 150, 18.0), at(10, 5, 0.6), at(15, 25, 3.0)])
    (found,), span = batch_times(history, "m")
    assert (found.size, found.executions, span) == (1, 20, 5)
    assert found.mean_s == pytest.approx(0.12)


def test_nan_infinite_and_negative_increases_leave_their_field_out() -> None:
    prometheus = FakePrometheus()
    prometheus.loads["p", "m"] = Load(10.0, 0.1)
    labels = {"namespace": "serving", "pod": "p", "model": "m"}
    for bad in (math.nan, math.inf, -8192.0):
        prometheus.extra["nv_inference_request_duration_us"] = [Sample(labels, bad)]
        seen = measure(prometheus, SCOPE, 60.0, NOW)
        fields = seen.rows["serving", "p", "m"]
        assert Field.REQUEST_US not in fields
        assert fields[Field.REQUESTS] == 600.0


def test_versions_gpus_and_failure_reasons_add_up_and_duplicates_do_not() -> None:
    prometheus = FakePrometheus()
    prometheus.loads["p", "m"] = Load(10.0)
    base = {"namespace": "serving", "pod": "p", "model": "m"}
    prometheus.extra["nv_inference_request_failure"] = [
        Sample({**base, "version": "1", "reason": "REJECTED"}, 3.0),
        Sample({**base, "version": "1", "reason": "BACKEND"}, 2.0),
        Sample({**base, "version": "2", "reason": "BACKEND"}, 1.0),
    ]
    assert measure(prometheus, SCOPE, 60.0, NOW).rows["serving", "p", "m"][Field.FAILURES] == 6.0
    for query in catalogue.TRITON_ROWS:
        assert query.template.startswith("max by (namespace, pod, model, version, gpu_uuid")


def test_a_query_that_fails_makes_its_own_field_unknown_only() -> None:
    class Partly(FakePrometheus):
        def vector(self, expression: str, at: float) -> list[Sample]:
            if "queue_duration" in expression:
                raise PrometheusError("too many samples")
            return super().vector(expression, at)

    prometheus = Partly()
    prometheus.loads["p", "m"] = Load(10.0)
    seen = measure(prometheus, SCOPE, 60.0, NOW)
    assert seen.failure is None
    made = model_row(seen, "serving", "p", MODEL, {"m": MODEL}, None)
    assert made.queue_s == Unknown("too many samples")
    assert isinstance(made.requests, Value)


def test_the_window_of_increase_is_what_the_scrapes_cover() -> None:
    # 60 s asked, but the pod is scraped only since 22 s: 20 s between scrapes, half an interval on either side
    class Young(FakePrometheus):
        def matrix(self, expression: str, at: float) -> list[RawSeries]:
            labels = {"namespace": "serving", "pod": "p", "model": "m"}
            return [RawSeries(labels, tuple((NOW - 22 + 5 * i, float(i)) for i in range(5)))]

    cover = measure(Young(), SCOPE, 60.0, NOW).coverage[KEY]
    assert cover.interval_s == 5.0
    assert cover.age_s == pytest.approx(2.0)
    assert cover.window_s == pytest.approx(20 + 2.5 + 2.0)


@pytest.mark.parametrize(("scrape", "window"), [(5, 60), (15, 65), (30, 125), (60, 240)])
def test_rate_windows_span_at_least_four_scrapes(scrape: float, window: float) -> None:
    assert next_window([Coverage(scrape, 60.0, 1.0, 10)]) == window


def test_names_are_quoted_so_that_none_is_read_as_an_expression() -> None:
    assert catalogue.matcher("pod", ("a.b", "c")) == r'pod=~"a\\.b|c"'


GATEWAY = GatewayHistogramConfig(family="g", match_labels={"job": "gw"})


class GatewayPrometheus(FakePrometheus):
    def __init__(self, samples: list[Sample], age: float = 3.0):
        super().__init__()
        self.samples, self.age = samples, age

    def vector(self, expression: str, at: float) -> list[Sample]:
        assert 'job="gw"' in expression
        if "timestamp(" in expression:
            return [Sample({"model": "m", "target_namespace": "serving"}, self.age)]
        return self.samples


def bucket(le: str, value: float, status: str = "200") -> Sample:
    return Sample({"model": "m", "target_namespace": "serving", "status": status, "le": le}, value)


def test_a_gateways_answers_and_failures_are_told_apart_by_status() -> None:
    samples = [bucket("0.3", 95), bucket("+Inf", 97), bucket("0.3", 1, "503"), bucket("+Inf", 3, "503")]
    (found,) = read_gateway(GatewayPrometheus(samples), GATEWAY, (60.0,), NOW)
    assert found.namespace == "serving"
    assert found.histogram.buckets == ((0.3, 95.0), (math.inf, 97.0))
    assert found.histogram.failures == 3.0
    assert found.histogram.age_s == 3.0


def test_a_lagging_inf_bucket_is_no_histogram() -> None:
    assert (
        read_gateway(GatewayPrometheus([bucket("0.032", 2.14), bucket("+Inf", 0)]), GATEWAY, (60.0,), NOW)
        == []
    )


def test_prometheus_unreachable_is_one_clear_error_without_a_retry() -> None:
    with pytest.raises(PrometheusError, match=r"127\.0\.0\.1:9/api/v1/query"):
        Prometheus("http://127.0.0.1:9", 1.0).vector("up", NOW)
