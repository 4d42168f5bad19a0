"""Records survive the way to the file and to the demo; the histogram can answer for the SLO exactly."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.gateway.histogram import GatewayMetrics
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
    labels = 'model="assistant-small",status="200",target_namespace="serving"'
    assert f'gateway_request_duration_seconds_bucket{{le="0.3",{labels}}} 2.0' in page
    assert f"gateway_request_duration_seconds_count{{{labels}}} 4.0" in page


def test_failures_are_told_apart_by_status() -> None:
    metrics = GatewayMetrics("serving")
    metrics.observe(replace(ONE, status=504, latency_s=10.0))
    assert 'status="504"' in metrics.page().decode()


def test_the_histogram_can_be_left_out() -> None:
    metrics = GatewayMetrics("serving", histogram=False)
    metrics.observe(ONE)
    assert "gateway_request_duration_seconds" not in metrics.page().decode()
