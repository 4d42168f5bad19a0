"""What `slo lint` says that a server refuses, a real server refuses; and what it only warns of, it loads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.utils import InferenceServerException

from slo_operator.offline.lint import ERROR
from slo_operator.offline.lint_repository import lint_files
from slo_operator.offline.repository import files_of
from tests.integration.triton_image import GRPC_KEY, Server, running_server

pytestmark = [
    pytest.mark.triton,
    pytest.mark.timeout(900),  # the image may have to be built first
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root: the image's root file system is entered by chroot"
    ),
]

MODELS = Path(__file__).resolve().parents[2] / "devcluster" / "serving" / "models"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("lint"), {"EMULATION_PROFILE": "small"}) as server:
        yield server


def changed(folder: Path, model: str, old: str, new: str) -> tuple[set[str], str]:
    """A copy of the demo's repository with a change in one file: codes of findings, and that file as JSON."""
    for file in files_of(MODELS):
        (folder / file.parent.name / "1").mkdir(parents=True)
        text = file.read_text()
        if file.parent.name == model:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / file.parent.name / "config.pbtxt").write_text(text)
    found = lint_files(files_of(folder))
    config = text_format.Parse((folder / model / "config.pbtxt").read_text(), ModelConfig())
    return {f"{one.severity} {one.code}" for one in found}, json_format.MessageToJson(
        config, preserving_proto_field_name=True
    )


BATCH = "max_batch_size: 16\n"


@pytest.mark.parametrize(
    ("model", "old", "new", "code"),
    [
        (
            "forward-small",
            BATCH,
            BATCH + "dynamic_batching { preferred_batch_size: [ 32 ] }\n",
            "preferred-above-max",
        ),
        ("assistant-small", BATCH, "max_batch_size: 32\n", "member-batch-below"),
        ("assistant-small", 'value: "input_ids"', 'value: "tokens"', "tensor-not-made"),
        ("assistant-small", 'key: "INPUT_IDS"', 'key: "TOKENS"', "no-such-tensor"),
        ("assistant-small", "TYPE_STRING dims: [ 1 ]", "TYPE_STRING dims: [ 2 ]", "shape-differs"),
        ("assistant-small", "TYPE_STRING", "TYPE_INT32", "type-differs"),
        ("assistant-small", 'model_name: "postprocessing"', 'model_name: "detokenizer"', "unknown-step"),
    ],
)
def test_an_error_is_refused_by_a_server(
    server: Server, model: str, old: str, new: str, code: str, tmp_path: Path
) -> None:
    codes, config = changed(tmp_path, model, old, new)
    assert f"{ERROR} {code}" in codes
    with pytest.raises(InferenceServerException):
        server.client().load_model(model, headers=GRPC_KEY, config=config, client_timeout=60)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (f"{BATCH}dynamic_batching {{ preferred_batch_size: [ 4, 16 ] }}\n", "smallest-preferred-wins"),
        ("max_batch_size: 0\ndynamic_batching { }\n", "batching-unsupported"),
    ],
)
def test_a_warning_is_loaded_by_a_server(server: Server, new: str, code: str, tmp_path: Path) -> None:
    codes, config = changed(tmp_path, "forward-small", BATCH, new)
    assert f"warning {code}" in codes
    server.client().load_model("forward-small", headers=GRPC_KEY, config=config, client_timeout=60)
