"""Prompts have a long tail; arrival files of several kinds can be replayed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from devcluster.gateway.arrivals import read_arrivals
from devcluster.gateway.prompts import _docstrings, infer_bodies, prompts

pytestmark = pytest.mark.unit

MIX = {"m": 1.0}


def test_prompt_lengths_are_long_tailed() -> None:
    lengths = [len(text.split()) for text in prompts(2000, seed=1)]
    # log-normal, median 60, sigma 0.8: mean 60·e^0.32 = 83, 99th percentile 60·e^1.86 = 385
    assert 54 < statistics.median(lengths) < 66
    assert 75 < statistics.mean(lengths) < 91
    assert 300 < sorted(lengths)[1980] < 480


def test_prompts_follow_from_the_seed() -> None:
    assert prompts(5, seed=1) == prompts(5, seed=1)
    assert prompts(5, seed=1) != prompts(5, seed=2)


def test_docstrings_stand_in_where_the_reference_is_missing() -> None:
    assert len(" ".join(_docstrings()).split()) > 20_000


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
