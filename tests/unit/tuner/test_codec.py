"""Memory survives its JSON; anything else than version 1 is a fresh start."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_tuner.codec import MAX_TRIED, memory_from_json, memory_to_json
from slo_tuner.memory import Change, Phase, ServerMemory, Tried
from slo_tuner.settings import Batching, LongLane, ModelSettings, Remote

names = st.text(min_size=1, max_size=8)
moments = st.floats(0.0, 3000.0)
numbers = st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False), max_size=3)
batchings = st.none() | st.builds(
    Batching, st.integers(0, 10_000), st.lists(st.integers(1, 64), max_size=3).map(tuple)
)
lanes = st.none() | st.builds(LongLane, st.integers(1, 1 << 20), st.integers(1, 8))
remotes = st.none() | st.builds(Remote, st.integers(1, 9000), st.integers(1, 8), lanes)
settings = st.dictionaries(
    names, st.builds(ModelSettings, st.integers(1, 16), st.integers(0, 128), batchings, remotes), max_size=3
)
changes = st.builds(
    Change,
    id=names,
    lever=names,
    settings=settings,
    before=settings,
    pods=st.lists(names, min_size=1, max_size=3).map(tuple),
    phase=st.sampled_from(Phase),
    since=moments,
    started=moments,
    looks=st.integers(0, 9),
    baseline=numbers,
    live=st.booleans(),
)
memories = st.builds(
    ServerMemory,
    original=settings,
    stable=settings,
    change=st.none() | changes,
    replicas=st.none() | st.integers(0, 9),
    last_action=moments,
    last_scale=moments,
    calm_since=st.none() | moments,
    reloads=st.lists(moments, max_size=5).map(tuple),
    tried=st.lists(st.builds(Tried, names, names, names, moments, numbers, numbers), max_size=3).map(tuple),
)


@given(memories)
def test_a_memory_survives_its_json(memory: ServerMemory) -> None:
    text = memory_to_json(memory)
    assert memory_from_json(text) == memory
    assert memory_to_json(memory_from_json(text)) == text


@given(st.text(max_size=60) | st.none())
def test_garbage_is_a_fresh_memory(text: str | None) -> None:
    assert memory_from_json(text) == ServerMemory()


@pytest.mark.parametrize("field", ["change", "stable", "reloads", "tried", "lastAction"])
def test_a_wrong_field_is_a_fresh_memory_not_a_crash(field: str) -> None:
    data = json.loads(memory_to_json(ServerMemory(last_action=5.0)))
    assert (
        memory_from_json(json.dumps({**data, field: 7.5 if field != "lastAction" else "x"})) == ServerMemory()
    )


def test_another_version_is_a_fresh_memory() -> None:
    data = json.loads(memory_to_json(ServerMemory(last_action=5.0)))
    assert memory_from_json(json.dumps({**data, "version": 2})) == ServerMemory()


def test_memory_is_bounded() -> None:
    tried = tuple(Tried("batching", f"f{i}", "worse", float(i)) for i in range(200))
    read = memory_from_json(memory_to_json(ServerMemory(tried=tried, reloads=(0.0, 5000.0, 8000.0))))
    assert len(read.tried) == MAX_TRIED
    assert read.tried[-1].fingerprint == "f199"
    assert read.reloads == (5000.0, 8000.0)
