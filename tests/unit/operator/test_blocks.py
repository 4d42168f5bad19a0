"""Blocks from raw scrapes, and the misses in them from whoever can tell."""

from __future__ import annotations

import pytest

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe import catalogue
from slo_operator.observe.blocks import BlockStore, block_length
from slo_operator.observe.misses import GatewayMisses, GatewayStore, TracedMisses
from slo_operator.observe.prometheus import RawSeries
from slo_tuner.snapshot import RequestTrace

T0 = 1_800_000_000.0


def series(
    family: str, per_second: float, seconds: int = 60, step: int = 5, phase: float = 1.0, model: str = "m"
) -> RawSeries:
    labels = {"__name__": f"nv_inference_request_{family}", "namespace": "s", "pod": "p", "model": model}
    times = [T0 + phase + i for i in range(0, seconds, step)]
    return RawSeries(labels, tuple((t, per_second * (t - T0)) for t in times))


def test_blocks_are_differences_of_counters_between_the_first_scrape_and_the_last() -> None:
    store = BlockStore()
    store.add([series("success", 8.0), series("duration_us", 8.0 * 250_000)], T0 + 60)
    blocks = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60)
    assert [b.start - T0 for b in blocks] == [10, 20, 30, 40], "scraped from 1 to 56"
    assert all(b.requests == pytest.approx(80) for b in blocks)
    assert all(b.latency_sum_s == pytest.approx(20.0) for b in blocks)
    assert all(b.misses is None for b in blocks)  # means do not know who missed


def burst(phase: float) -> RawSeries:
    """100 requests/s from 8 to 13, none before and after, scraped every five seconds at a phase."""
    labels = series("success", 0.0).labels
    times = [T0 + phase + i for i in range(-5, 60, 5)]
    return RawSeries(labels, tuple((t, 100.0 * min(5.0, max(0.0, t - T0 - 8.0))) for t in times))


@pytest.mark.parametrize(
    ("phase", "first"), [(0.0, 200.0), (1.0, 240.0), (2.4, 228.8), (2.6, 220.8), (4.0, 180.0)]
)
def test_a_burst_falls_into_the_same_blocks_whenever_a_pod_is_scraped(phase: float, first: float) -> None:
    """200 of the burst's 500 requests come before 10. By the nearest scrape it would be from none to 440."""
    store = BlockStore()
    store.add([burst(phase), series("duration_us", 1.0, phase=-5.0, seconds=70)], T0 + 60)
    found = {b.start - T0: b.requests for b in store.blocks("s", ["p"], {"m": 0.3}, T0 + 60)}
    assert found[0] + found[10] == pytest.approx(500.0), "no request is lost or counted twice"
    assert found[0] == pytest.approx(first, abs=0.01)


def test_a_block_with_a_counter_reset_is_left_out() -> None:
    store = BlockStore()
    broken = series("success", 8.0)
    points = list(broken.samples)
    points[7:] = [(t, v - points[6][1]) for t, v in points[7:]]
    store.add([RawSeries(broken.labels, tuple(points)), series("duration_us", 1.0)], T0 + 60)
    assert [b.start - T0 for b in store.blocks("s", ["p"], {"m": 0.3}, T0 + 60)] == [10, 20, 40]


def test_a_scrape_or_two_that_failed_are_bridged_and_a_longer_gap_is_not() -> None:
    """15 s between two scrapes are one and a half blocks of ten, the most that is bridged."""
    for missed, starts in ((2, [10, 20, 30, 40]), (3, [40])):
        store = BlockStore()
        whole = series("success", 8.0)
        points = whole.samples[:4] + whole.samples[4 + missed :]
        store.add([RawSeries(whole.labels, points), series("duration_us", 1.0)], T0 + 60)
        blocks = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60)
        assert [b.start - T0 for b in blocks] == starts
        assert all(b.requests == pytest.approx(80) for b in blocks)


def test_misses_come_from_traces_once_all_of_a_blocks_traces_can_be_here() -> None:
    store = BlockStore()
    store.add([series("success", 2.0), series("duration_us", 1.0)], T0 + 60)
    traces = [
        RequestTrace("p", "m", T0 + i / 2, 0.4 if i % 10 == 0 else 0.2, {}) for i in range(120)
    ]  # one in ten over 300 ms
    blocks = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60, sources=[TracedMisses(traces)])
    assert [b.start - T0 for b in blocks] == [10, 20, 30, 40]
    assert [b.misses for b in blocks] == [pytest.approx(2.0)] * 4


def test_a_blocks_stages_are_the_members_mean_times_for_as_many_requests() -> None:
    """80 requests of m in a block, and of the shared member 160 in all: 30 ms each are 2.4 s for m's."""
    store = BlockStore()
    store.add([series("success", 8.0), series("duration_us", 1.0)], T0 + 60)
    store.add(
        [
            series("success", 16.0, model="preprocessing"),
            series("duration_us", 16.0 * 30_000, model="preprocessing"),
        ],
        T0 + 60,
    )
    block, *_ = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60, members={"m": ("preprocessing",)})
    assert block.stage_sums_s == {"preprocessing": pytest.approx(2.4)}
    unknown, *_ = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60, members={"m": ("preprocessing", "forward")})
    assert set(unknown.stage_sums_s) == {"preprocessing"}, "a member without a series is not made up"


# --- misses by the gateway ------------------------------------------------------------------------

GATEWAY = GatewayHistogramConfig(family="seen_seconds", pod_label="upstream")


def answered(
    le: str,
    per_second: float,
    upstream: str = "10.0.0.7:8000",
    status: str = "200",
    phase: float = 2.0,
    **labels: str,
) -> RawSeries:
    """A gateway's bucket, scraped every five seconds at another moment than the pods."""
    found = {
        "le": le, "model": "m", "target_namespace": "s", "status": status, "upstream": upstream, "instance": "g-0",
        **labels,
    }  # fmt: skip
    times = [T0 + phase + i for i in range(0, 60, 5)]
    return RawSeries(found, tuple((t, per_second * (t - T0)) for t in times))


def gateway_misses(*answer: RawSeries, config: GatewayHistogramConfig = GATEWAY) -> GatewayMisses:
    store = GatewayStore(600.0)
    store.add(config, answer, T0 + 60)
    return store.of("s", {"p": "10.0.0.7", "q": "10.0.0.8"})


def test_misses_come_from_a_gateway_that_names_the_pod() -> None:
    """8 requests/s, 6 of them within 300 ms: a quarter of a block's 80."""
    store = BlockStore()
    store.add([series("success", 8.0), series("duration_us", 1.0)], T0 + 60)
    known = gateway_misses(answered("0.3", 6.0), answered("0.5", 7.0), answered("+Inf", 8.0))
    blocks = store.blocks("s", ["p"], {"m": 0.3}, T0 + 60, sources=[known])
    assert [b.start - T0 for b in blocks] == [10, 20, 30, 40], "the newest may not have been scraped yet"
    assert [b.misses for b in blocks] == [pytest.approx(20.0)] * 4


def test_gateways_add_up_and_failed_requests_are_left_to_the_servers_counters() -> None:
    known = gateway_misses(
        *(answered(le, n) for le, n in (("0.3", 2.0), ("+Inf", 4.0))),
        *(answered(le, n, instance="g-1") for le, n in (("0.3", 4.0), ("+Inf", 4.0))),
        answered("+Inf", 50.0, status="503"),
    )
    assert known.misses("p", "m", T0 + 10, T0 + 20, 0.3, 80.0) == pytest.approx(20.0)


@pytest.mark.parametrize("upstream", ["p", "10.0.0.7", "10.0.0.7:8000"])
def test_a_pod_is_known_by_its_name_or_its_address(upstream: str) -> None:
    known = gateway_misses(answered("0.3", 6.0, upstream), answered("+Inf", 8.0, upstream))
    assert known.covers("p", "m")
    assert not known.covers("q", "m")


def test_without_a_bucket_at_the_target_misses_are_not_known() -> None:
    known = gateway_misses(answered("0.25", 6.0), answered("+Inf", 8.0))
    assert known.misses("p", "m", T0 + 10, T0 + 20, 0.3, 80.0) is None


def test_a_gateway_that_was_restarted_or_not_scraped_tells_nothing() -> None:
    whole, within = answered("+Inf", 8.0), answered("0.3", 6.0)
    restarted = RawSeries(whole.labels, tuple((t, v if t < T0 + 16 else v - 48.0) for t, v in whole.samples))
    assert gateway_misses(within, restarted).misses("p", "m", T0 + 10, T0 + 20, 0.3, 80.0) is None
    short = RawSeries(whole.labels, whole.samples[:1])
    assert gateway_misses(within, short).misses("p", "m", T0 + 10, T0 + 20, 0.3, 80.0) is None


def test_milliseconds_are_understood() -> None:
    config = GATEWAY.model_copy(update={"unit": "milliseconds"})
    known = gateway_misses(answered("300", 6.0), answered("+Inf", 8.0), config=config)
    assert known.misses("p", "m", T0 + 10, T0 + 20, 0.3, 80.0) == pytest.approx(20.0)


@pytest.mark.parametrize(("unit", "bounds"), [("seconds", r"0\\.3|"), ("milliseconds", r"300|300\\.0|")])
def test_the_query_asks_for_the_targets_bucket_however_it_is_written(unit: str, bounds: str) -> None:
    config = GATEWAY.model_copy(update={"unit": unit, "match_labels": {"job": "gw"}})
    found = catalogue.gateway_scrapes(config, [0.3], "90s")
    assert found == f'seen_seconds_bucket{{job="gw", le=~"{bounds}\\\\+Inf"}}[90s]'


def test_a_finished_block_is_made_once() -> None:
    """Who knows misses is asked for a block until it is a minute old, and never again."""
    asked: list[float] = []

    class Known:
        def covers(self, pod: str, model: str) -> bool:
            return True

        def misses(
            self, pod: str, model: str, a: float, b: float, target_s: float, requests: float
        ) -> float | None:
            asked.append(a)
            return 1.0

    store = BlockStore()
    store.add([series("success", 8.0, 300), series("duration_us", 1.0, 300)], T0 + 300)
    first = store.blocks("s", ["p"], {"m": 0.3}, T0 + 300, sources=[Known()])
    again = len(asked)
    assert store.blocks("s", ["p"], {"m": 0.3}, T0 + 300, sources=[Known()]) == first
    assert len(first) == again == 28
    assert len(asked) - again == 6, "only those that ended within the last minute"
    assert store.blocks("s", ["p"], {"m": 0.2}, T0 + 300, sources=[Known()]) != ()
    assert len(asked) - again == 6 + 28, "another target is another question"


def test_the_next_query_asks_only_for_what_is_missing() -> None:
    store = BlockStore()
    assert store.seconds_to_ask([("s", "p")], T0 + 60) == 600.0
    store.add([series("success", 8.0)], T0 + 60)
    assert store.seconds_to_ask([("s", "p")], T0 + 60) == pytest.approx(60 + 4)
    assert store.seconds_to_ask([("s", "p"), ("s", "new")], T0 + 60) == 600.0


@pytest.mark.parametrize(("scrape", "length"), [(5, 10), (15, 15), (4, 12), (30, 30)])
def test_a_block_is_a_whole_number_of_scrapes_and_at_least_ten_seconds(scrape: int, length: int) -> None:
    assert block_length([T0 + i * scrape for i in range(5)]) == length
