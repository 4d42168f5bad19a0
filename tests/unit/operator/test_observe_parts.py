"""Roles, traces, the ledger, records and the reflector."""

from __future__ import annotations

import copy
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slo_operator.kube import CONFIG_MAPS, KubeError, Resource
from slo_operator.observe.cluster import ClusterState
from slo_operator.observe.ledger import Ledger
from slo_operator.observe.receiver import TraceReceiver
from slo_operator.observe.records import project_child, project_node, project_pod, quantity
from slo_operator.observe.reflector import Reflector
from slo_operator.observe.roles import with_gpu_users, with_roles
from slo_operator.observe.traces import TraceBuffer, TraceFormatError
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig, Pipeline
from tests.unit.operator.fakes import POOL, Clock, FakeKube, node

SAMPLE = json.loads((Path(__file__).parent / "data" / "otlp_sample.json").read_text(encoding="utf-8"))


# --- roles --------------------------------------------------------------------------------------


def config(name: str, gpu: bool = False, *steps: tuple[str, str, str]) -> ModelConfig:
    made = tuple(EnsembleStep(m, (i,), (o,)) for m, i, o in steps)
    return ModelConfig(name, ModelSettings(1, 8), steps=made, uses_gpu=gpu)


def pipeline(forward: tuple[str, ...] = ()) -> Pipeline:
    return Pipeline(
        "e", (), forward, (), (), max_batch_size=8, max_queue_delay_us=0, max_preprocess_instances=4
    )


CHAIN = (("tok", "IN", "ids"), ("llm", "ids", "out"), ("detok", "out", "TEXT"))


def models(gpu: str = "") -> dict[str, ModelConfig]:
    return {"e": config("e", False, *CHAIN)} | {m: config(m, m == gpu) for m, _, _ in CHAIN}


def test_the_member_with_most_compute_is_the_forward_pass_and_the_graph_gives_the_rest() -> None:
    found = with_roles(pipeline(), models(), {"tok": 0.03, "llm": 0.12, "detok": 0.002})
    assert (found.preprocess, found.forward, found.postprocess) == (("tok",), ("llm",), ("detok",))


def test_a_gpu_tells_the_forward_pass_however_slow_the_tokenizer_is() -> None:
    found = with_roles(pipeline(), models(gpu="llm"), {"tok": 0.9, "llm": 0.12, "detok": 0.002})
    assert found.forward == ("llm",)


def test_roles_that_people_wrote_stand() -> None:
    found = with_roles(pipeline(forward=("detok",)), models(gpu="llm"), {"llm": 1.0})
    assert found.forward == ("detok",)
    assert found.preprocess == ("tok", "llm")


def test_without_traffic_and_without_a_gpu_nothing_is_guessed() -> None:
    assert with_roles(pipeline(), models(), {}).forward == ()


def test_a_forward_stage_uses_the_pods_gpus_whatever_kind_its_instances_are() -> None:
    found = with_gpu_users(models(), [pipeline(forward=("llm",))])
    assert {name for name, c in found.items() if c.uses_gpu} == {"llm"}


def test_a_plain_model_is_its_own_forward_pass() -> None:
    assert with_roles(pipeline(), {"e": config("e")}, {}).forward == ("e",)


def test_nested_ensembles_are_opened() -> None:
    inner = config("inner", False, ("a", "x", "y"), ("llm", "y", "z"))
    outer = config("e", False, ("inner", "IN", "mid"), ("detok", "mid", "OUT"))
    nested = {
        "e": outer,
        "inner": inner,
        "a": config("a"),
        "llm": config("llm", True),
        "detok": config("detok"),
    }
    found = with_roles(pipeline(), nested, {})
    assert (found.preprocess, found.forward, found.postprocess) == (("a",), ("llm",), ("detok",))


# --- traces -------------------------------------------------------------------------------------


def spans(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["resourceSpans"][0]["scopeSpans"][0]["spans"]  # type: ignore[no-any-return]


def test_a_real_servers_traces_become_stage_times() -> None:
    buffer = TraceBuffer(100, history_s=1e12)
    assert buffer.add(SAMPLE) == 5
    (pod,) = buffer.by_pod(0.0)
    first = buffer.by_pod(0.0)[pod][0]
    assert pod == "chat-1"
    assert first.model == "assistant-small"
    assert set(first.stages) == {"preprocessing", "forward-small", "postprocessing"}
    # read off the recorded nanoseconds by hand
    assert first.stages["forward-small"].queue_s == pytest.approx(0.005343952)
    assert first.stages["forward-small"].compute_s == pytest.approx(0.137274926)
    whole = sum(s.queue_s + s.compute_s for s in first.stages.values())
    assert whole <= first.latency_s <= whole + 0.01


def test_a_request_whose_spans_come_in_two_posts_is_put_together() -> None:
    buffer = TraceBuffer(100, history_s=1e12)
    early, late = copy.deepcopy(SAMPLE), copy.deepcopy(SAMPLE)
    spans(early)[:] = [s for s in spans(early) if s["name"] != "InferRequest"]
    spans(late)[:] = [s for s in spans(late) if s["name"] == "InferRequest"]
    assert buffer.add(early) == 0
    assert buffer.add(late) == 5
    assert all(len(t.stages) == 3 for t in buffer.by_pod(0.0)["chat-1"])


def test_the_oldest_requests_are_dropped_first() -> None:
    buffer = TraceBuffer(3, history_s=1e12)
    buffer.add(SAMPLE)
    assert [t.model for t in buffer.by_pod(0.0)["chat-1"]] == [
        "assistant-small",
        "assistant-large",
        "assistant-base",
    ]


@pytest.mark.parametrize(
    "body", [{}, {"resourceSpans": 3}, {"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}]
)
def test_what_is_no_trace_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(TraceFormatError):
        TraceBuffer(3).add(body)


def test_the_receiver_takes_otlp_and_says_no_to_everything_else() -> None:
    buffer = TraceBuffer(100, history_s=1e12)
    receiver = TraceReceiver(0, buffer, lambda address: "", host="127.0.0.1")
    receiver.start()
    url = f"http://127.0.0.1:{receiver.port}"

    def post(path: str, data: bytes, kind: str = "application/json") -> int:
        request = urllib.request.Request(url + path, data, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    try:
        assert post("/v1/traces", json.dumps(SAMPLE).encode()) == 200
        assert post("/v1/metrics", b"{}") == 404
        assert post("/v1/traces", b"\x0a\x00", "application/x-protobuf") == 415
        assert post("/v1/traces", b"[]") == 400
        assert post("/v1/traces", b"not json") == 400
        assert len(buffer.by_pod(0.0)["chat-1"]) == 5
    finally:
        receiver.stop()


# --- records and ledger -------------------------------------------------------------------------


def gpu_pod(
    name: str, gpus: int, node_name: str = "node-1", phase: str = "Running", **spec: Any
) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {"name": name, "namespace": "s"},
        "spec": {"containers": [container], "nodeName": node_name} | spec,
        "status": {"phase": phase},
    }


def state(*pods: dict[str, Any], gpus: int = 8) -> ClusterState:
    records = [project_pod(p) for p in pods]
    found = project_node(node(gpus=gpus))
    return ClusterState({p.meta.key: p for p in records}, {found.meta.key: found}, {})


def test_the_ledger_counts_running_pending_and_terminating_pods_and_not_finished_ones() -> None:
    ledger = Ledger(
        state(
            gpu_pod("mine", 2),
            gpu_pod("foreign", 1),
            gpu_pod("waiting", 2, node_name="", phase="Pending", nodeSelector=dict(POOL)),
            gpu_pod("done", 4, phase="Succeeded"),
            gpu_pod("elsewhere", 4, node_name="node-9"),
        )
    )
    pool = ledger.pool("a100", POOL, 8, {("s", "mine")})
    assert (pool.limit_gpus, pool.used_gpus, pool.free_gpus) == (5, 2, 3)


def test_what_an_earlier_resource_was_promised_is_gone_for_later_ones() -> None:
    ledger = Ledger(state(gpus=8))
    ledger.promise(POOL, 6)
    assert ledger.pool("a100", POOL, 4, set()).free_gpus == 2


def test_a_pool_without_nodes_has_nothing_to_give() -> None:
    assert Ledger(state()).pool("h100", {"nvidia.com/gpu.product": "H100"}, 4, set()).free_gpus == 0


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("8", 8.0), ("2Gi", 2**31), ("1e3", 1000.0), (2, 2.0)]
)
def test_quantities(text: str | int, value: float) -> None:
    assert quantity(text) == value


# --- reflector ----------------------------------------------------------------------------------


def config_map(name: str, version: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "s", "uid": name, "resourceVersion": version}
    return {"kind": "ConfigMap", "metadata": meta, "data": data}


class ScriptedKube(FakeKube):
    """Lists `items` at version 10, then plays one watch after another; a KubeError in a script is raised."""

    def __init__(self, items: list[dict[str, Any]], *watches: list[Any]):
        super().__init__()
        self.items, self.watches, self.lists = items, list(watches), 0
        self.asked: list[str] = []

    def list_pages(self, resource: Resource, selector: str = "") -> Iterator[dict[str, Any]]:
        self.lists += 1
        yield {"items": self.items, "metadata": {"resourceVersion": "10"}}

    def watch(self, resource: Resource, version: str, seconds: int, selector: str = "") -> Iterator[Any]:
        self.asked.append(version)
        for step in self.watches.pop(0):
            if isinstance(step, KubeError):
                raise step
            if isinstance(step, threading.Event):
                step.set()
                return
            yield step


def reflect(kube: ScriptedKube) -> tuple[Reflector[Any], list[str]]:
    changed: list[str] = []
    reflector = Reflector(kube, CONFIG_MAPS, project_child, lambda r: changed.append(r.meta.name), Clock())
    return reflector, changed


def test_a_watch_follows_bookmarks_and_begins_where_it_ended() -> None:
    stop = threading.Event()
    kube = ScriptedKube(
        [config_map("a", "5", k="1")],
        [("MODIFIED", config_map("a", "11", k="2")), ("BOOKMARK", config_map("", "40"))],
        [("DELETED", config_map("a", "41")), stop],
    )
    reflector, changed = reflect(kube)
    reflector.run(stop)
    assert kube.asked == ["10", "40"]
    assert kube.lists == 1
    assert changed == ["a", "a", "a"]
    assert reflector.snapshot() == {}


def test_an_expired_watch_lists_again() -> None:
    stop = threading.Event()
    kube = ScriptedKube([config_map("a", "5")], [KubeError(410, "Expired", "too old")], [stop])
    reflector, _ = reflect(kube)
    reflector.run(stop)
    assert kube.lists == 2


def test_an_own_write_is_known_at_once_and_an_older_event_does_not_undo_it() -> None:
    stop = threading.Event()
    kube = ScriptedKube([config_map("a", "5", k="1")], [("MODIFIED", config_map("a", "11", k="stale")), stop])
    reflector, _ = reflect(kube)
    reflector.relist()
    reflector.put(config_map("a", "12", k="mine"))
    reflector.watch_once(stop)
    found = reflector.get("s", "a")
    assert found is not None
    assert found.data == {"k": "mine"}


def test_an_event_that_changes_nothing_that_is_kept_wakes_nobody() -> None:
    stop = threading.Event()
    kube = ScriptedKube([config_map("a", "5", k="1")], [("MODIFIED", config_map("a", "11", k="1")), stop])
    reflector, changed = reflect(kube)
    reflector.run(stop)
    assert changed == ["a"]
