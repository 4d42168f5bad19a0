"""Settings into a model configuration and back, for files and for loads."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from slo_operator.render.model_config import (
    apply_settings,
    from_json,
    from_text,
    settings_of,
    to_json,
    to_text,
)
from slo_operator.render.tuned import settings_from_json, settings_to_json
from slo_tuner.settings import Batching, LongLane, ModelSettings, Remote

FORWARD = """
name: "forward"
backend: "python"
max_batch_size: 16
input [{ name: "IDS" data_type: TYPE_INT32 dims: [ -1 ] }]
instance_group [{ count: 2 kind: KIND_CPU }]
parameters { key: "table" value { string_value: "$$TRITON_MODEL_DIRECTORY/${unset}" } }
"""
ON_GPU = """
name: "onnx"
backend: "onnxruntime"
max_batch_size: 8
instance_group [{ count: 2 kind: KIND_GPU }]
"""
ENSEMBLE = """
name: "pipe"
platform: "ensemble"
max_batch_size: 16
ensemble_scheduling { step [{ model_name: "forward" model_version: -1 }] }
"""


def forward(more: str = "") -> ModelConfig:
    return from_text(FORWARD + more)


def test_instances_and_batching_are_set_and_everything_else_stays() -> None:
    out = apply_settings(forward(), ModelSettings(4, 8, Batching(5000, (4, 8))))
    assert out.instance_group[0].count == 4
    assert out.max_batch_size == 8
    assert out.dynamic_batching.max_queue_delay_microseconds == 5000
    assert list(out.dynamic_batching.preferred_batch_size) == [4, 8]
    assert out.parameters["table"].string_value == "$$TRITON_MODEL_DIRECTORY/${unset}"
    assert out.input[0].name == "IDS"


def test_the_configuration_that_comes_in_is_not_changed() -> None:
    config = forward()
    apply_settings(config, ModelSettings(4, 8, Batching(1000)))
    assert config == forward()


def test_batching_off_and_batching_without_delay_are_two_things() -> None:
    off = apply_settings(forward("dynamic_batching { }"), ModelSettings(2, 16, None))
    assert not off.HasField("dynamic_batching")
    on = apply_settings(forward(), ModelSettings(2, 16, Batching(0)))
    assert on.HasField("dynamic_batching")
    assert settings_of(on) == ModelSettings(2, 16, Batching(0, ()))


def test_other_options_of_batching_survive_a_change_of_delay() -> None:
    config = forward("dynamic_batching { preserve_ordering: true max_queue_delay_microseconds: 9 }")
    out = apply_settings(config, ModelSettings(2, 16, Batching(100)))
    assert out.dynamic_batching.preserve_ordering
    assert out.dynamic_batching.max_queue_delay_microseconds == 100


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ModelSettings(0, 16), "forward.instances = 0: from 1 to 1024"),
        (ModelSettings(-1, 16), "forward.instances = -1"),
        (ModelSettings(1, -1), "forward.max_batch_size = -1"),
        (ModelSettings(1, 0), "forward.max_batch_size = 0: the model's is 16"),
        (ModelSettings(1, 16, Batching(-1)), "forward.batching.delay_us = -1"),
        (
            ModelSettings(1, 8, Batching(0, (4, 16))),
            "forward.batching.preferred_sizes = 16: from 1 to max_batch_size, 8",
        ),
        (ModelSettings(1, 8, Batching(0, (0,))), "forward.batching.preferred_sizes = 0"),
    ],
)
def test_what_a_server_would_refuse_never_becomes_a_configuration(
    settings: ModelSettings, words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        apply_settings(forward(), settings)


def test_a_model_that_cannot_batch_is_not_made_to() -> None:
    config = from_text('name: "detector" max_batch_size: 0 dynamic_batching { }')
    with pytest.raises(
        ValueError, match=r"detector.batching = .*: a model with max_batch_size 0 cannot batch"
    ):
        apply_settings(config, ModelSettings(1, 0, Batching(1000)))
    with pytest.raises(ValueError, match=r"detector.max_batch_size = 8: the model's is 0"):
        apply_settings(config, ModelSettings(1, 8, Batching(1000)))
    assert apply_settings(config, ModelSettings(2, 0)).instance_group[0].count == 2


def test_a_model_of_sequences_keeps_its_batcher() -> None:
    config = forward("sequence_batching { max_sequence_idle_microseconds: 5 }")
    with pytest.raises(ValueError, match="batches sequences"):
        apply_settings(config, ModelSettings(2, 16, Batching(0)))
    assert apply_settings(config, ModelSettings(3, 16)).HasField("sequence_batching")


def test_a_count_on_gpus_is_per_gpu() -> None:
    config = from_text(ON_GPU)
    assert settings_of(config, gpus=2).instances == 4
    out = apply_settings(config, ModelSettings(6, 8), gpus=2)
    assert [(g.count, list(g.gpus)) for g in out.instance_group] == [(3, [])]


def test_instances_that_do_not_divide_by_the_gpus_are_dealt_out() -> None:
    out = apply_settings(from_text(ON_GPU), ModelSettings(3, 8), gpus=2)
    assert [(g.count, list(g.gpus)) for g in out.instance_group] == [(2, [0]), (1, [1])]
    assert settings_of(out, gpus=2).instances == 3
    one = apply_settings(from_text(ON_GPU), ModelSettings(1, 8), gpus=2)
    assert [(g.count, list(g.gpus)) for g in one.instance_group] == [(1, [0])]
    assert settings_of(one, gpus=2).instances == 1


def test_a_count_elsewhere_is_the_total_whatever_the_gpus() -> None:
    assert settings_of(forward(), gpus=2).instances == 2
    assert apply_settings(forward(), ModelSettings(3, 16), gpus=2).instance_group[0].count == 3


def test_a_group_without_a_kind_is_what_the_server_makes_of_it() -> None:
    onnx = from_text('name: "o" backend: "onnxruntime" max_batch_size: 4 instance_group [{ count: 2 }]')
    assert settings_of(onnx, gpus=2).instances == 4
    out = apply_settings(onnx, ModelSettings(6, 4), gpus=2)
    assert [(g.count, ModelInstanceGroup.Kind.Name(g.kind)) for g in out.instance_group] == [(3, "KIND_GPU")]
    python = from_text('name: "p" backend: "python" max_batch_size: 4 instance_group [{ count: 2 }]')
    assert settings_of(python, gpus=2).instances == 2
    assert settings_of(onnx, gpus=0).instances == 2


def test_a_file_without_groups_means_what_the_server_makes_of_it() -> None:
    assert settings_of(from_text('name: "o" backend: "onnxruntime" max_batch_size: 4'), gpus=2).instances == 2
    assert settings_of(from_text('name: "p" backend: "python" max_batch_size: 4'), gpus=2).instances == 1


def test_groups_of_several_kinds_are_left_to_people() -> None:
    config = from_text(
        'name: "x" max_batch_size: 4 instance_group [{count: 1 kind: KIND_CPU}, {count: 1 kind: KIND_GPU}]'
    )
    with pytest.raises(ValueError, match=r"x.instances = 5: .*KIND_CPU, KIND_GPU"):
        apply_settings(config, ModelSettings(5, 4), gpus=1)
    assert apply_settings(config, ModelSettings(2, 2), gpus=1).max_batch_size == 2


def test_of_an_ensemble_only_the_batch_counts() -> None:
    out = apply_settings(from_text(ENSEMBLE), ModelSettings(5, 8, Batching(1)))
    assert out.max_batch_size == 8
    assert not out.instance_group
    assert not out.HasField("dynamic_batching")
    assert settings_of(out) == ModelSettings(1, 8)


def test_leftovers_of_a_larger_batch_are_brought_within_the_new_one() -> None:
    config = forward(
        'model_warmup [{ name: "w" batch_size: 16 }]'
        " optimization { cuda { graphs: true graph_spec [{ batch_size: 4 }, { batch_size: 16 }] } }"
    )
    out = apply_settings(config, ModelSettings(2, 8))
    assert out.model_warmup[0].batch_size == 8
    assert [spec.batch_size for spec in out.optimization.cuda.graph_spec] == [4]


def test_an_error_in_a_file_names_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 3: .*max_batch"):
        from_text('name: "x"\n# tuned\nmax_batch_sizes: 4\n')
    with pytest.raises(ValueError, match="line 1"):
        from_text("max_batch_size: ${triton_max_batch_size}")


def test_what_a_server_answers_is_read_and_sent_back_whole() -> None:
    answer = json.dumps(
        {
            "name": "forward",
            "max_batch_size": 16,
            "input": [{"name": "IDS", "data_type": "TYPE_INT32", "dims": ["-1"]}],
            "instance_group": [{"name": "forward_0", "count": 2, "kind": "KIND_CPU"}],
            "dynamic_batching": {"max_queue_delay_microseconds": "5000"},
            "backend": "python",
            "field_of_a_newer_server": 1,
        }
    )
    config = from_json(answer)
    assert settings_of(config) == ModelSettings(2, 16, Batching(5000))
    sent = json.loads(to_json(apply_settings(config, ModelSettings(3, 16, Batching(2000)))))
    assert sent["instance_group"] == [{"name": "forward_0", "count": 3, "kind": "KIND_CPU"}]
    assert sent["dynamic_batching"] == {"max_queue_delay_microseconds": "2000"}
    assert sent["input"] == [{"name": "IDS", "data_type": "TYPE_INT32", "dims": ["-1"]}]


@st.composite
def settings(draw: st.DrawFn, movable: bool = True) -> ModelSettings:
    batch = draw(st.integers(1, 256))
    sizes = draw(st.lists(st.integers(1, batch), max_size=4, unique=True))
    batching = draw(st.none() | st.builds(Batching, st.integers(0, 10_000_000), st.just(tuple(sizes))))
    lanes = st.none() | st.builds(LongLane, st.integers(1, 1 << 30), st.integers(1, 64))
    remotes = (
        st.builds(Remote, st.integers(1, 600_000), st.integers(1, 8), lanes) if movable else st.nothing()
    )
    remote = draw(st.none() | remotes)
    return ModelSettings(draw(st.integers(1, 64)), batch, batching, remote)


@given(st.data(), st.sampled_from([FORWARD, ON_GPU]), st.integers(0, 8))
def test_settings_come_back_from_every_form_of_the_configuration(
    data: st.DataObject, text: str, gpus: int
) -> None:
    wanted = data.draw(settings(movable=text is FORWARD))
    out = apply_settings(from_text(text), wanted, gpus)
    assert settings_of(out, gpus) == wanted
    assert from_json(to_json(out)) == out
    assert from_text(to_text(out)) == out
    assert apply_settings(out, wanted, gpus) == out


@given(st.dictionaries(st.text(min_size=1, max_size=12), settings(), max_size=4))
def test_tuned_settings_come_back_from_their_text(tuned: dict[str, ModelSettings]) -> None:
    assert settings_from_json(settings_to_json(tuned)) == tuned


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"m": {"instances": 1, "max_batch_size": 1, "remote": {}}}',
            "m.remote.timeout_ms: expected a whole number",
        ),
        (
            '{"m": {"instances": 1, "max_batch_size": 1, "remote": {"timeout_ms": 1, "lane": {"members": 1}}}}',
            "m.remote.lane.from_bytes: expected a whole number",
        ),
        ("{", "line 1: not JSON"),
        ("[]", "expected an object with one entry per model, got list"),
        ('{"m": 3}', "m: expected an object"),
        ('{"m": {"instances": 1.5, "max_batch_size": 1}}', "m.instances: expected a whole number, got 1.5"),
        ('{"m": {"instances": true, "max_batch_size": 1}}', "m.instances: expected a whole number, got True"),
        ('{"m": {"instances": 1}}', "m.max_batch_size: expected a whole number, got None"),
        ('{"m": {"instances": 1, "max_batch_size": 1, "batch": {}}}', "m.batch: there is no such field"),
        (
            '{"m": {"instances": 1, "max_batch_size": 1, "batching": {"delay": 1}}}',
            "m.batching.delay: there is no",
        ),
        (
            '{"m": {"instances": 1, "max_batch_size": 1, "batching": {"preferred_sizes": 4}}}',
            "m.batching.preferred_sizes: expected a list",
        ),
        ("[" * 100_000, "not settings: nested too deeply"),
    ],
)
def test_broken_settings_are_named_by_model_and_field(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        settings_from_json(text)


# --- moved to a pool --------------------------------------------------------------------------------------------------

OWN_FILE = 'name: "m"\nbackend: "python"\nmax_batch_size: 8\ndefault_model_filename: "own.py"\n'


@pytest.mark.parametrize("text", [FORWARD, OWN_FILE])
def test_the_way_to_the_pool_and_back_leaves_nothing_behind(text: str) -> None:
    config = apply_settings(from_text(text), settings_of(from_text(text)))
    here = settings_of(config)
    moved = apply_settings(config, replace(here, remote=Remote(200, 2)))
    assert moved.default_model_filename == "inferenceslo_stand_in.py"
    laned = Remote(300, 2, LongLane(4096, 1))
    again = apply_settings(moved, replace(here, remote=laned))
    assert settings_of(again).remote == laned
    assert apply_settings(again, replace(here, remote=Remote(200, 2))) == moved
    assert apply_settings(again, here) == config


def test_only_a_python_model_can_be_moved() -> None:
    onnx = from_text('name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 8\n')
    with pytest.raises(ValueError, match=r"m\.remote = .*only models of the python backend"):
        apply_settings(onnx, ModelSettings(1, 8, remote=Remote(200)))
    with pytest.raises(ValueError, match=r"m\.remote\.timeout_ms = 0"):
        apply_settings(from_text(OWN_FILE), ModelSettings(1, 8, remote=Remote(0)))
    with pytest.raises(ValueError, match=r"m\.remote\.lane = .*at least 1"):
        apply_settings(from_text(OWN_FILE), ModelSettings(1, 8, remote=Remote(200, 1, LongLane(4096, 0))))
