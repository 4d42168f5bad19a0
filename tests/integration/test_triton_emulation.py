"""The serving image: a real Triton with emulated cores and GPUs, as the operator meets it."""

import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from devcluster.gateway.prompts import Prompts
from tests.integration.triton_image import GPUS, GRPC_KEY, KEY, Server, free_ports, running_server

pytestmark = [
    pytest.mark.triton,
    pytest.mark.timeout(900),  # the image may have to be built first
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root: the image's root file system is entered by chroot"
    ),
]

VARIANTS = ("small", "base", "large")
AS_FOUND_MIB = 8192 + 12288 + 16384


class Collector:
    """Takes what the server posts as request traces."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.pods: set[str] = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, posted: dict[str, Any]) -> None:
        for resource in posted["resourceSpans"]:
            attributes = {a["key"]: a["value"].get("stringValue") for a in resource["resource"]["attributes"]}
            self.pods.add(str(attributes.get("k8s.pod.name")))
            for scope in resource["scopeSpans"]:
                self.spans += scope["spans"]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    traces = [
        *("--trace-config", "mode=opentelemetry", "--trace-config", f"opentelemetry,url={collector.url}"),
        *("--trace-config", "opentelemetry,resource=k8s.pod.name=chat-0"),
        *("--trace-config", "opentelemetry,bsp_schedule_delay=500"),
        *("--trace-config", "level=OFF", "--trace-config", "rate=1000"),
    ]
    with running_server(tmp_path_factory.mktemp("triton"), {}, *traces) as server:
        yield server


@pytest.fixture
def as_found(server: Server) -> Iterator[Server]:
    """The server, and its forward-small put back afterwards."""
    before = server.config("forward-small")
    yield server
    if server.config("forward-small") != before:
        server.client().load_model("forward-small", headers=GRPC_KEY, config=json.dumps(before))


class Clients:
    """Requests at a steady rate from start to end of a with block, and how they went."""

    def __init__(self, server: Server, rate: float) -> None:
        self.server, self.period, self.statuses = server, 1 / rate, list[int]()
        self.done, self.prompts = threading.Event(), Prompts(1)
        self.pool = ThreadPoolExecutor(32)

    def __enter__(self) -> "Clients":
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self.pool.shutdown()

    def run(self) -> None:
        while not self.done.wait(self.period):
            self.pool.submit(self.one, self.prompts.next())

    def one(self, prompt: str) -> None:
        self.statuses.append(self.server.ask("small", prompt)[0])


def settled(read: Callable[[], object], wanted: object, seconds: float = 10) -> None:
    """Wait until `read` gives `wanted`."""
    deadline = time.monotonic() + seconds
    while (value := read()) != wanted:
        assert time.monotonic() < deadline, f"{value} after {seconds} s, wanted {wanted}"
        time.sleep(0.1)


def forward_seconds(server: Server, variant: str, requests: int) -> float:
    """Seconds that `requests`, one after the other, spend in a forward model by Triton's own count."""
    model = f"forward-{variant}"
    served = server.metric("nv_inference_request_success", model=model)
    before = server.metric("nv_inference_compute_infer_duration_us", model=model)
    for _ in range(requests):
        assert server.ask(variant, "What is a tuple?")[0] == 200
    # Triton counts after it has answered
    settled(lambda: server.metric("nv_inference_request_success", model=model), served + requests)
    return (server.metric("nv_inference_compute_infer_duration_us", model=model) - before) / 1e6


def test_every_variant_answers_with_text(server: Server) -> None:
    for variant in VARIANTS:
        status, body = server.ask(variant, "How does a generator keep its state between two calls of next()?")
        assert status == 200
        text = json.loads(json.loads(body)["outputs"][0]["data"][0])
        assert "generator keep its state" in text["text"]


def test_the_pipeline_as_found(server: Server) -> None:
    counts = {
        model: server.config(model)["instance_group"][0]["count"]
        for model in ("preprocessing", "postprocessing", *(f"forward-{variant}" for variant in VARIANTS))
    }
    assert counts == {"preprocessing": 1, "postprocessing": 1, **{f"forward-{v}": 2 for v in VARIANTS}}
    for variant in VARIANTS:
        assert "dynamic_batching" not in server.config(f"forward-{variant}")
    assert server.gpu_memory() == [AS_FOUND_MIB] * 2


def test_a_forward_pass_takes_120_ms_and_a_quarter_of_a_gpu(server: Server) -> None:
    requests, before = 12, server.gpu_busy()
    seconds = forward_seconds(server, "base", requests)
    busy = server.gpu_busy() - before
    # Never shorter than the table; how much longer depends on this machine, and Triton's time holds all of it.
    assert requests * 0.1195 <= seconds
    assert requests * 0.120 * 0.24 * 0.99 <= busy <= seconds * 0.24


def test_the_cores_are_busy_for_the_preprocessing_s_time(server: Server) -> None:
    before = server.account()["cpu_seconds"]
    page = Prompts(1)._text[:4000]  # at the token limit: 9.4 ms + 39 us for each of about 1000
    for _ in range(5):
        server.ask("base", page)
    per_request = (server.account()["cpu_seconds"] - before) / 5
    assert 0.035 <= per_request <= 0.100


def test_the_metrics_page_follows_the_account(server: Server) -> None:
    assert server.ask("base", "What is a tuple?")[0] == 200
    wanted = server.account()
    seconds = wanted["gpu_busy_seconds"] | {"cores": wanted["cpu_seconds"]}
    settled(
        lambda: {
            **{gpu: server.metric("emulated_gpu_busy_seconds_total", gpu=gpu) for gpu in GPUS},
            "cores": server.metric("emulated_cpu_seconds_total"),
        },
        pytest.approx(seconds, abs=1e-3),
    )
    assert [server.metric("emulated_gpu_memory_used_mib", gpu=gpu) for gpu in GPUS] == [AS_FOUND_MIB] * 2


def test_more_instances_are_loaded_in_place_and_take_gpu_memory(as_found: Server) -> None:
    with Clients(as_found, rate=8) as clients:
        time.sleep(0.5)
        loaded = as_found.load("forward-small", instance_group=[{"count": 4, "kind": "KIND_CPU"}])
        assert loaded["instance_group"][0]["count"] == 4
        settled(as_found.gpu_memory, [AS_FOUND_MIB + 8192] * 2)  # the old copy's goes after its last request
        as_found.load("forward-small", instance_group=[{"count": 2, "kind": "KIND_CPU"}])
    assert set(clients.statuses) == {200}


def test_batching_is_switched_on_without_a_failed_request_and_forms_batches(as_found: Server) -> None:
    batching = {"max_queue_delay_microseconds": "5000", "preferred_batch_size": [4, 8]}
    busy = as_found.gpu_busy()
    with Clients(as_found, rate=8) as clients:
        time.sleep(0.5)
        loaded = as_found.load("forward-small", dynamic_batching=batching)
        time.sleep(0.5)
    assert set(clients.statuses) == {200}
    assert loaded["dynamic_batching"] == batching
    as_found.load("preprocessing", instance_group=[{"count": 6, "kind": "KIND_CPU"}])
    with ThreadPoolExecutor(24) as pool:
        statuses = [
            status for status, _ in pool.map(lambda n: as_found.ask("small", f"prompt {n}"), range(48))
        ]
    as_found.load("preprocessing", instance_group=[{"count": 1, "kind": "KIND_CPU"}])
    assert set(statuses) == {200}
    stats = as_found.client().get_inference_statistics("forward-small", as_json=True)["model_stats"][0]
    assert max(int(row["batch_size"]) for row in stats["batch_stats"]) >= 2
    # the reload has not set the account back
    assert as_found.gpu_busy() > busy


def test_a_load_beyond_the_gpu_s_memory_is_refused_and_the_old_instances_serve(as_found: Server) -> None:
    with Clients(as_found, rate=8) as clients:
        with pytest.raises(
            InferenceServerException, match=r"out of memory.*forward-small_0_\d+ needs 8192 MiB on GPU-"
        ):
            as_found.load("forward-small", instance_group=[{"count": 16, "kind": "KIND_CPU"}])
        time.sleep(1.0)  # requests after the refusal
    assert set(clients.statuses) == {200}
    assert as_found.config("forward-small")["instance_group"][0]["count"] == 2
    settled(as_found.gpu_memory, [AS_FOUND_MIB] * 2)


def test_control_is_refused_without_the_key_over_grpc_and_http(server: Server) -> None:
    client = server.client()
    calls: list[Callable[..., object]] = [
        partial(client.get_model_config, "forward-small"),
        client.get_model_repository_index,
        client.get_trace_settings,
    ]
    for call in calls:
        with pytest.raises(InferenceServerException, match="restricted"):
            call()
        with pytest.raises(InferenceServerException, match="restricted"):
            call(headers={"triton-grpc-protocol-admin-key": "guess"})
        assert call(headers=GRPC_KEY)
    with pytest.raises(InferenceServerException, match="restricted"):
        client.load_model("forward-small")
    for path, body in (("/v2/models/forward-small/config", None), ("/v2/repository/index", b"{}")):
        assert server.get(path, body=body)[0] == 403
        assert server.get(path, {"admin-key": KEY}, body)[0] == 200
    assert server.get("/v2/repository/models/forward-small/load", body=b"{}")[0] == 403
    assert server.get("/v2/models/stats")[0] == 200
    assert client.get_inference_statistics("forward-small").model_stats


def test_request_traces_carry_the_pod_s_name_and_every_stage(server: Server, collector: Collector) -> None:
    client = server.client()
    client.update_trace_settings(
        settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, headers=GRPC_KEY
    )
    assert server.ask("large", "What is a tuple?")[0] == 200
    client.update_trace_settings(settings={"trace_level": ["OFF"], "trace_rate": "1000"}, headers=GRPC_KEY)
    deadline = time.monotonic() + 20
    while len(collector.spans) < 8 and time.monotonic() < deadline:
        time.sleep(0.2)
    names = [span["name"] for span in collector.spans]
    stages = ["assistant-large", "forward-large", "postprocessing", "preprocessing"]
    assert sorted(names) == sorted(["InferRequest", *stages, "compute", "compute", "compute"])
    assert collector.pods == {"chat-0"}
    assert len({span["traceId"] for span in collector.spans}) == 1


def test_a_setting_can_be_made_harmful(tmp_path: Path) -> None:
    faults = {"EMULATION_PROFILE": "small", "EMULATION_FAULTS": '{"batching_adds_ms": 300}'}
    with running_server(tmp_path, faults) as server:
        assert forward_seconds(server, "small", 3) < 3 * 0.400
        server.load("forward-small", dynamic_batching={"max_queue_delay_microseconds": "5000"})
        assert forward_seconds(server, "small", 3) >= 3 * 0.419


def test_a_refused_reload_leaves_the_old_copy_serving(tmp_path: Path) -> None:
    variables = {"EMULATION_FAULTS_FILE": "/dev/shm/faults.json", "EMULATION_PROFILE": "small"}
    with running_server(tmp_path, variables) as server:
        # the server's own view of /dev/shm: its mount namespace
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        shm = Path(f"/proc/{children[0]}/root/dev/shm")
        (shm / "faults.json").write_text('{"fail_load": ["forward-base"]}')
        with pytest.raises(InferenceServerException, match="refused on purpose"):
            server.load("forward-base", dynamic_batching={"max_queue_delay_microseconds": "5000"})
        assert "dynamic_batching" not in server.config("forward-base")
        assert server.ask("base", "What is a tuple?")[0] == 200
        (shm / "faults.json").unlink()
        assert "dynamic_batching" in server.load(
            "forward-base", dynamic_batching={"max_queue_delay_microseconds": "5000"}
        )
