"""Loads in an order that never leaves an ensemble with a member that takes less than it sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_operator.render.load_order import load_order
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig


def plain(name: str, batch: int) -> ModelConfig:
    return ModelConfig(name, ModelSettings(1, batch))


def ensemble(name: str, batch: int, *members: str) -> ModelConfig:
    return ModelConfig(name, ModelSettings(1, batch), steps=tuple(EnsembleStep(m, (), ()) for m in members))


def by_name(*configs: ModelConfig) -> dict[str, ModelConfig]:
    return {config.name: config for config in configs}


def live(configs: dict[str, ModelConfig]) -> dict[str, ModelSettings]:
    return {name: config.settings for name, config in configs.items()}


PIPE = by_name(ensemble("pipe", 16, "pre", "fwd"), plain("pre", 16), plain("fwd", 16))


def test_lowering_begins_with_the_ensemble() -> None:
    wanted = {"fwd": ModelSettings(1, 8), "pipe": ModelSettings(1, 8)}
    assert load_order(live(PIPE), wanted, PIPE) == [
        ("pipe", ModelSettings(1, 8)),
        ("fwd", ModelSettings(1, 8)),
    ]


def test_raising_begins_with_the_members() -> None:
    wanted = {"pipe": ModelSettings(1, 32), "fwd": ModelSettings(1, 32), "pre": ModelSettings(1, 32)}
    assert [model for model, _ in load_order(live(PIPE), wanted, PIPE)] == ["fwd", "pre", "pipe"]


def test_what_is_as_wanted_is_not_loaded_again() -> None:
    wanted = {"pre": ModelSettings(4, 16), "fwd": ModelSettings(1, 16), "pipe": ModelSettings(1, 16)}
    assert load_order(live(PIPE), wanted, PIPE) == [("pre", ModelSettings(4, 16))]


def test_an_outer_ensemble_is_lowered_before_and_raised_after_the_inner_one() -> None:
    nested = by_name(ensemble("outer", 16, "inner"), ensemble("inner", 16, "fwd"), plain("fwd", 16))
    lower = {name: ModelSettings(1, 4) for name in nested}
    assert [model for model, _ in load_order(live(nested), lower, nested)] == ["outer", "inner", "fwd"]
    higher = {name: ModelSettings(1, 64) for name in nested}
    assert [model for model, _ in load_order(live(nested), higher, nested)] == ["fwd", "inner", "outer"]


def test_a_member_below_its_ensemble_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        ValueError, match=r"fwd.max_batch_size = 8: the ensemble pipe sends batches of up to 16"
    ):
        load_order(live(PIPE), {"fwd": ModelSettings(1, 8)}, PIPE)
    with pytest.raises(
        ValueError, match=r"pre.max_batch_size = 16: the ensemble pipe sends batches of up to 32"
    ):
        load_order(live(PIPE), {"pipe": ModelSettings(1, 32)}, PIPE)


def test_a_model_that_the_server_does_not_have_is_named() -> None:
    with pytest.raises(
        ValueError, match="forwards: the server has no model of that name, only fwd, pipe, pre"
    ):
        load_order(live(PIPE), {"forwards": ModelSettings(1, 8)}, PIPE)


@given(
    st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64)),
    st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64)),
    st.integers(1, 3),
)
def test_on_the_way_no_ensemble_ever_sends_more_than_a_member_takes(
    before: tuple[int, int, int], after: tuple[int, int, int], instances: int
) -> None:
    def valid(batches: tuple[int, int, int]) -> tuple[int, int, int]:
        fwd, inner, outer = sorted(batches, reverse=True)
        return fwd, inner, outer

    configs = by_name(
        ensemble("outer", 1, "inner", "pre"), ensemble("inner", 1, "fwd"), plain("fwd", 64), plain("pre", 64)
    )
    names = ("fwd", "inner", "outer")
    state = {name: ModelSettings(1, batch) for name, batch in zip(names, valid(before), strict=True)}
    state["pre"] = ModelSettings(1, 64)
    wanted = {
        name: ModelSettings(instances, b, Batching(100)) for name, b in zip(names, valid(after), strict=True)
    }
    for model, settings in load_order(dict(state), wanted, configs):
        state[model] = settings
        assert state["outer"].max_batch_size <= state["inner"].max_batch_size <= state["fwd"].max_batch_size
    assert {name: state[name] for name in names} == wanted
