"""Records survive the way to the file and to the demo; the histogram can answer for the SLO exactly."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.gateway.histogram import KEPT_UPSTREAMS, GatewayMetrics
from devcluster.gateway.records import Record, Recorder, as_row, from_row

pytestmark = pytest.mark.unit

ONE = Record(0, "load", "assistant-small", 1000.0, 1000.001, 0.25, 200, "10.1.0.4:8000")


def test_a_record_read_back_from_its_row_is_the_same() -> None:
    assert from_row(as_row(ONE)) == ONE


def test_records_are_fetched_from_a_number_on() -> None:
    recorder = Recorder(keep=3)
    for number in range(5):
        recorder.add(replace(ONE, number=number))
    assert [record.number for record in recorder.since(3)] == [3, 4]
    assert [record.number for record in recorder.since(0)] == [2, 3, 4]
    assert [record.number for record in recorder.since(0, limit=2)] == [2, 3]
    assert recorder.since(5) == []


def test_anything_but_a_200_is_a_failure() -> None:
    recorder = Recorder()
    for number, status in enumerate((200, 400, 503, 504)):
        recorder.add(replace(ONE, number=number, status=status))
    assert (recorder.total, recorder.failed) == (4, 3)


@pytest.mark.parametrize("name", ["all.jsonl", "all.csv"])
def test_every_record_is_written(tmp_path: Path, name: str) -> None:
    recorder = Recorder(tmp_path / name)
    recorder.add(ONE)
    recorder.close()
    text = (tmp_path / name).read_text()
    rows = (
        [json.loads(line) for line in text.splitlines()]
        if "json" in name
        else list(csv.DictReader(text.splitlines()))
    )
    assert [(row["model"], float(row["latency_s"]), int(row["status"])) for row in rows] == [
        ("assistant-small", 0.25, 200)
    ]


def test_the_histogram_counts_requests_within_the_slo_exactly() -> None:
    metrics = GatewayMetrics("serving")
    for latency in (0.12, 0.3, 0.3001, 0.9):
        metrics.observe(replace(ONE, latency_s=latency))
    page = metrics.page().decode()
    labels = 'model="assistant-small",status="200",target_namespace="serving",upstream="10.1.0.4:8000"'
    assert f'gateway_request_duration_seconds_bucket{{le="0.3",{labels}}} 2.0' in page
    assert f"gateway_request_duration_seconds_count{{{labels}}} 4.0" in page


def test_failures_are_told_apart_by_status() -> None:
    metrics = GatewayMetrics("serving")
    metrics.observe(replace(ONE, status=504, latency_s=10.0))
    assert 'status="504"' in metrics.page().decode()


def counts(metrics: GatewayMetrics) -> dict[str, float]:
    """Requests by upstream, over all other labels."""
    found: dict[str, float] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "gateway_request_duration_seconds_count":
                upstream = sample.labels["upstream"]
                found[upstream] = found.get(upstream, 0.0) + sample.value
    return found


def test_a_p99_within_ten_percent_of_the_slo_can_be_told() -> None:
    metrics = GatewayMetrics("serving")
    for latency in (0.27, 0.2701):
        metrics.observe(replace(ONE, latency_s=latency))
    buckets = re.findall(r'_bucket{le="(0\.27|0\.3)",.*} (.*)', metrics.page().decode())
    assert buckets == [("0.27", "1.0"), ("0.3", "2.0")]


def test_requests_are_told_apart_by_the_pod_they_were_sent_to() -> None:
    metrics = GatewayMetrics("serving")
    for pod in ("10.1.0.4:8000", "10.1.0.5:8000", "10.1.0.5:8000"):
        metrics.observe(replace(ONE, pod=pod))
    assert counts(metrics) == {"10.1.0.4:8000": 1, "10.1.0.5:8000": 2}


def test_a_request_without_a_pod_has_an_empty_upstream() -> None:
    metrics = GatewayMetrics("serving")
    metrics.observe(replace(ONE, status=503, pod=""))
    assert counts(metrics) == {"": 1}


def test_the_pod_unused_for_longest_is_forgotten_with_all_its_series_when_too_many_are_known() -> None:
    metrics = GatewayMetrics("serving")
    pods = [f"10.1.0.{number}:8000" for number in range(KEPT_UPSTREAMS)]
    for pod in pods:
        metrics.observe(replace(ONE, pod=pod))
        metrics.observe(replace(ONE, pod=pod, model="assistant-base", status=504))
    assert counts(metrics) == dict.fromkeys(pods, 2)
    metrics.observe(replace(ONE, pod=pods[0]))
    metrics.observe(replace(ONE, pod="10.1.1.0:8000"))
    assert counts(metrics) == {pods[0]: 3, **dict.fromkeys(pods[2:], 2), "10.1.1.0:8000": 1}
    assert f'upstream="{pods[1]}"' not in metrics.page().decode()


def test_a_forgotten_pod_that_answers_again_counts_from_zero() -> None:
    metrics = GatewayMetrics("serving")
    for number in range(KEPT_UPSTREAMS + 1):
        metrics.observe(replace(ONE, pod=f"10.1.0.{number}:8000"))
    metrics.observe(replace(ONE, pod="10.1.0.0:8000"))
    assert counts(metrics)["10.1.0.0:8000"] == 1
    assert len(counts(metrics)) == KEPT_UPSTREAMS


def test_the_histogram_can_be_left_out() -> None:
    metrics = GatewayMetrics("serving", histogram=False)
    metrics.observe(ONE)
    assert "gateway_request_duration_seconds" not in metrics.page().decode()
