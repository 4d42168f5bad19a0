"""A stage moved to another server and back, on real Tritons: the clients notice nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from slo_operator.remote.pool import FAILED_S
from slo_operator.render.model_config import apply_settings, from_json, settings_of, to_json
from slo_tuner.settings import LongLane, ModelSettings, Remote
from tests.integration.triton_image import GRPC_KEY, Server, free_ports, overlay_of, running_server

pytestmark = [
    pytest.mark.triton,
    pytest.mark.timeout(900),  # the image may have to be built first
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root: the image's root file system is entered by chroot"
    ),
]

Json = dict[str, Any]

STAGE = "preprocessing"
HERE = ModelSettings(1, 16)
MOVED = ModelSettings(8, 16, remote=Remote(2000))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The stage alone, on a server without GPUs."""
    with running_server(tmp_path_factory.mktemp("pool"), {}, models=[STAGE]) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, pool: Server) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    environment = {"INFERENCESLO_POOL": f"127.0.0.1:{pool.http}"}
    with running_server(folder, environment, overlay=overlay_of(folder)) as server:
        yield server


def run(server: Server, wanted: ModelSettings) -> ModelSettings:
    """Load the stage with these settings; those that the server then says it runs."""
    config = from_json(server.get(f"/v2/models/{STAGE}/config", {"admin-key": "sesame"})[1])
    changed = to_json(apply_settings(config, wanted))
    server.client().load_model(STAGE, headers=GRPC_KEY, config=changed, client_timeout=120)
    return settings_of(from_json(server.get(f"/v2/models/{STAGE}/config", {"admin-key": "sesame"})[1]))


def results(server: Server, result: str) -> float:
    return server.metric("inferenceslo_pool_requests_total", model=STAGE, result=result)


def test_a_moved_stage_gives_the_same_answers_and_comes_back(server: Server, pool: Server) -> None:
    assert run(server, HERE) == HERE
    before = server.ask("small", "Where is the time spent?")
    assert before[0] == 200
    assert run(server, MOVED) == MOVED
    asked = pool.metric("nv_inference_request_success", model=STAGE)
    for _ in range(5):
        assert server.ask("small", "Where is the time spent?") == before
    time.sleep(1.5)  # metrics pages follow
    assert pool.metric("nv_inference_request_success", model=STAGE) == asked + 5
    assert results(server, "pool") == 5
    assert run(server, HERE) == HERE
    assert server.ask("small", "Where is the time spent?") == before
    assert pool.metric("nv_inference_request_success", model=STAGE) == asked + 5


@pytest.mark.parametrize(
    "prompt",
    [
        {"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": ["word " * 200_000]},
        {"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": [""]},
        {"name": "PROMPT", "datatype": "BYTES", "shape": [3, 1], "data": ["a", "b", "naïve 文"]},
        {"name": "PROMPT", "datatype": "BYTES", "shape": [1, 3], "data": ["a", "b", "c"]},
        {"name": "PROMPT", "datatype": "INT32", "shape": [1, 1], "data": [7]},
        {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},
    ],
    ids=["a megabyte", "empty", "a batch", "another shape", "a number", "another name"],
)
def test_odd_requests_get_the_answers_that_the_stage_itself_gives(server: Server, prompt: Json) -> None:
    body = json.dumps({"inputs": [prompt]}).encode()

    def answer() -> tuple[int, object]:
        status, text = server.get(f"/v2/models/{STAGE}/infer", body=body)
        return status, json.loads(text)

    run(server, HERE)
    before = answer()
    run(server, MOVED)
    assert answer() == before


def test_a_lane_is_part_of_the_configuration_and_answers_are_counted_by_size(server: Server) -> None:
    """With one member there is nothing to choose; which member gets what is tried where members are cheap."""
    laned = replace(MOVED, remote=Remote(2000, 1, LongLane(2048, 1)))
    run(server, HERE)
    assert run(server, laned) == laned

    def answers() -> list[float]:
        """Below 512 bytes and below 4 KiB."""
        found = []
        for below in ("512", "4096"):
            try:
                labels = {"model": STAGE, "bytes": below, "found": "idle"}
                found.append(server.metric("inferenceslo_pool_answers_total", **labels))
            except ValueError:  # no such series yet
                found.append(0.0)
        return found

    before = answers()
    for prompt in (
        "What is a tuple?",
        "word " * 700,
        "word " * 700,
    ):  # 3504 bytes with the length of the text
        assert server.ask("small", prompt)[0] == 200
    time.sleep(1.5)  # metrics pages follow
    assert [now - then for now, then in zip(answers(), before, strict=True)] == [1, 2]
    assert run(server, HERE) == HERE


def test_without_the_pool_requests_are_computed_here_and_the_pool_is_found_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("alone")
    (port,) = free_ports(1)
    environment = {"INFERENCESLO_POOL": f"127.0.0.1:{port}"}
    with running_server(folder, environment, overlay=overlay_of(folder), models=[STAGE]) as server:
        assert run(server, MOVED) == MOVED
        prompt = {"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": ["Who is there?"]}
        body = json.dumps({"inputs": [prompt]}).encode()

        def ask(times: int) -> set[tuple[int, str]]:
            return {server.get(f"/v2/models/{STAGE}/infer", body=body) for _ in range(times)}

        alone = ask(5)
        assert {status for status, _ in alone} == {200}
        assert len(alone) == 1
        with running_server(tmp_path_factory.mktemp("late"), {}, models=[STAGE], http=port):
            time.sleep(FAILED_S + 0.5)  # until then nobody asks the member that was not there
            assert ask(5) == alone
        assert ask(5) == alone, "killed, with connections to it still open"
        time.sleep(1.5)  # metrics pages follow
        assert results(server, "pool") > 0
        assert results(server, "pool") + results(server, "local") == 15
