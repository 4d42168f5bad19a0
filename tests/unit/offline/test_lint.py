"""Configurations as they are found in the wild: what is wrong, on which line, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from slo_operator.offline.lint import Finding, line_of
from slo_operator.offline.lint_repository import lint_files
from slo_operator.offline.repository import files_of

PYTHON = 'backend: "python"\nmax_batch_size: 8\n'
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "ANSWER" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "second" input_map { key: "IDS" value: "ids" } output_map { key: "OUT" value: "ANSWER" } },
    { model_name: "first" input_map { key: "PROMPT" value: "TEXT" } output_map { key: "IDS" value: "ids" } }
  ]
}
"""
FIRST = PYTHON + (
    'input [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    'output [ { name: "IDS" data_type: TYPE_INT32 dims: [ 8 ] } ]\n'
)
SECOND = PYTHON + (
    'input [ { name: "IDS" data_type: TYPE_INT32 dims: [ 8 ] } ]\n'
    'output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
)


def repository(folder: Path, **configs: str) -> list[Path]:
    """A repository's configurations, each with a version folder."""
    for name, text in configs.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
    return files_of(folder)


def codes(found: list[Finding]) -> list[str]:
    return [one.code for one in found]


def test_a_sound_repository_has_no_findings_whatever_the_order_of_steps(tmp_path: Path) -> None:
    assert lint_files(repository(tmp_path, chat=ENSEMBLE, first=FIRST, second=SECOND)) == []


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        ("max_batch_size: 8\nmax_batchsize: 3\n", "syntax", 2, "max_batchsize"),
        ("max_batch_size: ${triton_max_batch_size}\n", "bare-placeholder", 1, "${triton_max_batch_size}"),
        (
            'parameters {\n key: "kv"\n value { string_value: "${kv_cache_free_gpu_mem_fraction}" }\n}\n',
            "placeholder", 3, "counts as unset",
        ),
        ("max_batch_size: 0\ndynamic_batching { }\n", "batching-unsupported", 2, "cannot batch"),
        (
            "max_batch_size: 8\ndynamic_batching {\n  preferred_batch_size: [ 4, 16 ]\n}\n",
            "preferred-above-max", 3, "[16] are above max_batch_size 8",
        ),
        (
            "max_batch_size: 64\n# preferred_batch_size\ndynamic_batching { preferred_batch_size: [ 4, 16 ] }\n",
            "smallest-preferred-wins", 3, "smallest preferred size, 4",
        ),
        (
            'backend: "tensorrtllm"\nmax_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 1000 }\n',
            "delay-before-inflight-batching", 3, "batches in flight",
        ),
        (
            'max_batch_size: 8\ninput [ { name: "IDS" dims: [ -1 ] } ]\n'
            "dynamic_batching { max_queue_delay_microseconds: 70000 }\n",
            "delay-for-other-shapes", 3, "wait 70 ms for nobody",
        ),
    ],
)  # fmt: skip
def test_a_file_s_fault_is_found_on_its_line(
    text: str, code: str, line: int, words: str, tmp_path: Path
) -> None:
    (found,) = lint_files(repository(tmp_path, m=text))
    assert (found.code, found.line) == (code, line)
    assert words in found.message
    assert found.file.endswith("m/config.pbtxt")


def test_a_delay_is_held_against_the_target(tmp_path: Path) -> None:
    files = repository(tmp_path, m=PYTHON + "dynamic_batching { max_queue_delay_microseconds: 50000 }\n")
    assert lint_files(files) == []
    assert lint_files(files, target_s=0.6) == []
    (found,) = lint_files(files, target_s=0.3)
    assert (found.code, found.suggestion) == ("delay-eats-target", "max_queue_delay_microseconds: 30000")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"first": None}, "unknown-step", "the step first is no model here; there are chat, second"),
        ({"first": FIRST.replace("PROMPT", "QUERY")}, "no-such-tensor", "first has no input PROMPT; it has QUERY"),
        ({"first": FIRST.replace('"IDS"', '"TOKENS"')}, "no-such-tensor", "first has no output IDS; it has TOKENS"),
        ({"first": FIRST.replace("INT32", "INT64")}, "type-differs", "ids is TYPE_INT64, IDS of second wants TYPE_INT32"),
        ({"second": SECOND.replace("size: 8", "size: 4")}, "member-batch-below", "batches of 8, its step second of 4"),
        ({"chat": ENSEMBLE.replace('value: "ids" }', 'value: "tok" }', 1)}, "tensor-not-made", "tok, which second takes"),
        ({"chat": ENSEMBLE.replace('value: "ANSWER"', 'value: "OTHER"')}, "output-not-made", "makes the output ANSWER"),
        (
            {"first": FIRST.replace("input [", 'input [ { name: "MORE" data_type: TYPE_BOOL dims: [ 1 ] },')},
            "input-missing", "nothing goes to MORE of first",
        ),
        ({"first": FIRST.replace("[ 8 ]", "[ 16 ]")}, "shape-differs", "ids has the shape [ 16 ], IDS of second wants [ 8 ]"),
        ({"second": SECOND.replace("TYPE_STRING dims: [ 1 ]", "TYPE_STRING dims: [ 2 ]")}, "shape-differs", "the ensemble wants [ 1 ]"),
        ({"chat": ENSEMBLE.replace('"TEXT" data_type: TYPE_STRING', '"TEXT" data_type: TYPE_INT8')}, "type-differs", "TEXT is TYPE_INT8"),
    ],
)  # fmt: skip
def test_what_an_ensemble_is_made_of_has_to_fit(
    change: dict[str, str | None], code: str, words: str, tmp_path: Path
) -> None:
    configs = {"chat": ENSEMBLE, "first": FIRST, "second": SECOND} | change
    found = lint_files(repository(tmp_path, **{k: v for k, v in configs.items() if v is not None}))
    assert code in codes(found)
    assert words in next(one.message for one in found if one.code == code)


@pytest.mark.parametrize(
    ("made", "wanted", "fits"),
    [
        ("dims: [ -1 ]", "dims: [ 8 ]", True),
        ("dims: [ 8, 3 ]", "dims: [ 8, -1 ]", True),
        ("dims: [ 8, 3 ]", "dims: [ 8 ]", False),
        ("dims: [ -1 ]", "dims: [ -1, 4 ]", False),
        ("", "dims: [ 8 ]", True),
    ],
)
def test_a_dimension_of_any_length_fits_and_a_number_of_dimensions_does_not(
    made: str, wanted: str, fits: bool, tmp_path: Path
) -> None:
    first, second = FIRST.replace("dims: [ 8 ]", made), SECOND.replace("dims: [ 8 ]", wanted)
    found = lint_files(repository(tmp_path, chat=ENSEMBLE, first=first, second=second))
    assert ("shape-differs" not in codes(found)) is fits


def test_the_batch_may_be_the_first_dimension_of_a_model_that_does_not_batch(tmp_path: Path) -> None:
    """Core, `ensemble_utils.cc`: [-1, d_0, …] of a non-batching model fits [d_0, …] of a batching one."""
    first = FIRST.replace("size: 8", "size: 0").replace("[ 8 ]", "[ -1, 8 ]")
    assert "shape-differs" not in codes(
        lint_files(repository(tmp_path, chat=ENSEMBLE, first=first, second=SECOND))
    )


def test_a_file_alone_is_not_blamed_for_its_neighbours(tmp_path: Path) -> None:
    repository(tmp_path, chat=ENSEMBLE)
    assert lint_files(files_of(tmp_path / "chat")) == []


def test_names_and_versions_are_those_of_the_folders(tmp_path: Path) -> None:
    files = repository(tmp_path, m='name: "other"\n' + PYTHON)
    assert codes(lint_files(files)) == ["name-differs"]
    (tmp_path / "m" / "1").rmdir()
    (tmp_path / "m" / "config.pbtxt").write_text(PYTHON)
    (found,) = lint_files(files)
    assert (found.code, found.line, found.field) == ("no-version", None, None)


def test_processes_are_held_against_cores_and_shared_memory(tmp_path: Path) -> None:
    """64 MiB for each Python instance: 1 + 6 of them need 448 MiB."""
    many = PYTHON + "instance_group [ { count: 6 kind: KIND_CPU } ]\n"
    files = repository(tmp_path, one=PYTHON, six=many)
    assert lint_files(files, cpus=6, shm_mib=448) == []
    assert codes(lint_files(files, cpus=4)) == ["more-processes-than-cores"]
    (found,) = lint_files(files, shm_mib=64)
    assert "need 448 MiB of /dev/shm, there are 64" in found.message
    assert found.file.endswith("six/config.pbtxt")


def test_a_file_is_never_written(tmp_path: Path) -> None:
    (file,) = repository(tmp_path, m="max_batch_size: 0\ndynamic_batching { }\n")
    file.chmod(0o444)
    before = file.read_bytes(), file.stat().st_mtime_ns
    lint_files([file])
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: 2", 2), ('a: "b"\n# b\n b { }', 3), ("ab: 1", None), ('x: "\\"b"\nb: 1', 2)],
)
def test_a_word_is_found_outside_comments_and_strings(text: str, line: int | None) -> None:
    assert line_of(text, "b") == line
