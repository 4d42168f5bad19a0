"""Requests are Triton's; arrival files of several kinds can be replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devcluster.gateway.arrivals import read_arrivals
from devcluster.gateway.prompts import infer_bodies

pytestmark = pytest.mark.unit

MIX = {"m": 1.0}


def test_a_body_is_tritons_request() -> None:
    body = json.loads(infer_bodies(["hello"])[0])
    assert body["inputs"] == [{"name": "PROMPT", "shape": [1, 1], "datatype": "BYTES", "data": ["hello"]}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "at_s,model\n5,m\n6.5,m\n"),
        ("a.csv", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.5000000,1\n2023-11-16 18:17:05.0000000,2\n"),
        ("a.jsonl", '{"timestamp": 2000}\n{"timestamp": 3500}\n'),
        ("a.jsonl", '{"scheduled": 1001.5, "model": "m"}\n{"scheduled": 1000.0, "model": "m"}\n'),
    ],
)
def test_arrivals_start_at_zero_and_keep_their_gaps(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [(a.at_s, a.model) for a in read_arrivals(path, mix=MIX, seed=1)] == [(0.0, "m"), (1.5, "m")]
    assert [a.at_s for a in read_arrivals(path, mix=MIX, seed=1, speed=3)] == [0.0, 0.5]


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"when": 1}\n', r"a.jsonl:1: no time"), ("{}\nx\n", "no time"), ("x\n", ":1: not a JSON")],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_arrivals(path, mix=MIX, seed=1)
