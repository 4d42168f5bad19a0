"""The configuration file, loads on a pod, trace rates, events, the process's health."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from slo_operator.act.control import Controller
from slo_operator.act.events import EventRecorder, Subject
from slo_operator.act.tracing import set_traces, trace_rate
from slo_operator.config import ConfigError, load_config, parse_config
from slo_operator.health import Health
from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.records import project_pod
from slo_operator.observe.triton import TritonError
from slo_operator.specs import Specs
from slo_tuner.settings import Batching, ModelSettings, PodSettings
from tests.unit.operator.fakes import Clock, FakeKube, FakeTriton, resource

ROOT = Path(__file__).parents[3]
POD = ("serving", "p")


# --- configuration ------------------------------------------------------------------------------


def test_the_shipped_configurations_are_readable() -> None:
    for name in ("base", "dev"):
        body = yaml.safe_load((ROOT / "manifests" / name / "config.yaml").read_text(encoding="utf-8"))
        config = parse_config(yaml.safe_load(body["data"]["config.yaml"]), name)
        assert config.interval in (5.0, 15.0)
        assert not config.traces.enabled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("interval: soon", ["interval", "'soon' is not a duration", "15s"]),
        ("prometheus: {uri: http://x}", ["prometheus.uri", "Extra inputs"]),
        ("traces: {rate: 0}", ["traces.rate", "greater than or equal to 1"]),
        ("gatewayHistograms: [{family: a b}]", ["gatewayHistograms.0.family"]),
        ("gatewayHistograms: [{family: a, podLabel: dst-pod}]", ["gatewayHistograms.0.podLabel"]),
        ("- a", ["expected a mapping"]),
        ("a: [", ["not YAML"]),
    ],
)
def test_a_wrong_file_is_refused_with_file_field_and_what_would_be_right(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_an_empty_file_means_the_defaults_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("", encoding="utf-8")
    empty = load_config(tmp_path / "empty.yaml")
    assert empty.interval == 15.0
    assert not empty.traces.enabled, "Triton's tracing can crash the server: only when asked for"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")


# --- loads on a pod -----------------------------------------------------------------------------


class OnePod:
    """A controller over one pod that runs the pipeline as found."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.triton = FakeTriton()
        self.reader = LiveReader(lambda *_: self.triton, ThreadPoolExecutor(2))
        self.controller = Controller(self.reader, self.clock)
        self.live = self.read()

    def read(self) -> dict[tuple[str, str], LivePod]:
        body = {
            "metadata": {"name": "p", "namespace": "serving", "uid": "u"},
            "spec": {"containers": [{"name": "triton"}]},
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "containerStatuses": [
                    {"name": "triton", "state": {"running": {"startedAt": "2027-01-15T07:00:00Z"}}}
                ],
            },
        }
        return self.reader.read([(project_pod(body), "key")], self.clock(), {POD})

    def carry_out(self, wanted: PodSettings) -> Any:
        return self.controller.carry_out("serving", {"p": wanted}, self.live, gpus=2)


def test_what_runs_already_is_not_loaded_again() -> None:
    pod = OnePod()
    result = pod.carry_out(dict(pod.live[POD].settings))
    assert (result.loads, result.refusals, pod.triton.loads) == (0, [], [])


def test_an_ensemble_goes_down_before_its_members() -> None:
    pod = OnePod()
    smaller = {
        "forward": ModelSettings(2, 8, Batching(5000)),
        "assistant": ModelSettings(1, 8),
    }
    result = pod.carry_out(smaller)
    assert pod.triton.loads == ["assistant", "forward"]
    assert result.refusals == []
    assert pod.read()[POD].settings["forward"] == ModelSettings(2, 8, Batching(5000))


def test_a_setting_that_no_server_would_take_is_never_sent() -> None:
    pod = OnePod()
    result = pod.carry_out({"forward": ModelSettings(2, 16, Batching(5000, (64,)))})
    assert pod.triton.loads == []
    (refusal,) = result.refusals
    assert "preferred_sizes = 64" in refusal.message


def test_a_member_below_its_ensemble_is_never_sent() -> None:
    pod = OnePod()
    result = pod.carry_out({"forward": ModelSettings(2, 4)})
    assert pod.triton.loads == []
    assert "lower the ensemble first" in result.refusals[0].message


def test_a_load_that_failed_twice_is_not_tried_again_for_ten_minutes() -> None:
    pod = OnePod()
    pod.triton.refuses = {"forward": "invalid argument: out of memory"}
    wanted = {"forward": ModelSettings(20, 16)}
    for _ in range(5):
        refused = pod.carry_out(wanted).refusals
        assert refused[0].wanted == ModelSettings(20, 16)
    assert pod.triton.loads == ["forward", "forward"]
    assert "not tried again" in refused[0].message
    pod.clock.now += 601
    pod.carry_out(wanted)
    assert pod.triton.loads == ["forward"] * 3


def test_a_model_is_not_loaded_again_on_a_pod_within_five_seconds() -> None:
    """Its old copy still unloads for two or three seconds: a change of instances meanwhile has crashed servers."""
    pod = OnePod()
    pod.carry_out({"forward": ModelSettings(2, 16, Batching(5000))})
    pod.live = pod.read()
    again = {"forward": ModelSettings(4, 16, Batching(5000))}
    pod.clock.now += 4
    result = pod.carry_out(again)
    assert (result.loads, result.refusals, result.problem) == (0, [], ""), "left to the next tick"
    assert pod.triton.loads == ["forward"]
    pod.carry_out({**again, "preprocessing": ModelSettings(4, 16)})
    assert pod.triton.loads == ["forward"], "nor is an order of loads torn apart"
    pod.clock.now += 1
    assert pod.carry_out(again).loads == 1


def test_a_pod_that_does_not_answer_refuses_nothing_and_is_left_for_the_next_tick() -> None:
    pod = OnePod()
    pod.triton.silent = True
    result = pod.carry_out({"forward": ModelSettings(4, 16)})
    assert result.refusals == []
    assert "deadline exceeded" in result.problem


def test_a_pod_whose_state_could_not_be_read_is_left_alone() -> None:
    pod = OnePod()
    pod.triton.silent = True
    pod.clock.now += 61
    pod.live = pod.read()
    pod.triton.silent = False
    assert pod.live[POD].error
    pod.carry_out({"forward": ModelSettings(4, 16)})
    assert pod.triton.loads == []


def test_a_client_in_use_stays_open_while_its_resource_is_not_asked() -> None:
    pod = OnePod()
    pod.reader.read([], pod.clock(), {POD})
    assert pod.reader.client(POD) is pod.triton
    pod.reader.read([], pod.clock(), set())
    assert pod.reader.client(POD) is None


def test_a_gateway_need_not_tell_the_pod() -> None:
    families = [{"family": "a"}, {"family": "b", "podLabel": "dst_pod"}]
    config = parse_config({"gatewayHistograms": families}, "test")
    assert [g.pod_label for g in config.gateway_histograms] == ["", "dst_pod"]


# --- request traces -----------------------------------------------------------------------------

OFF, ON = {"trace_level": ["OFF"]}, {"trace_level": ["TIMESTAMPS"], "trace_rate": ["4"]}
BATCHES = {"forward": ModelSettings(2, 16, Batching(5000))}


class TracedPod(OnePod):
    """One whose tracing is set."""

    def __init__(self, tracing: dict[str, list[str]]) -> None:
        super().__init__()
        self.triton.tracing |= tracing
        self.reader.invalidate(POD)
        self.live = self.read()

    @property
    def written(self) -> list[Mapping[str, list[str]]]:
        return self.triton.traced

    def trace(self, rate: int | None = 4, wanted: PodSettings | None = None) -> str:
        self.reader.invalidate(POD)
        self.live = self.read()
        return set_traces(self.reader, self.live, {"p": wanted or {}}, rate)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"forward": ModelSettings(2, 16)},
        {"forward": ModelSettings(2, 1, Batching(0)), "assistant": ModelSettings(1, 1)},
    ],
    ids=["as found", "larger batches by clients only", "batches of one"],
)
def test_a_pod_without_batches_is_traced_and_written_to_once(settings: PodSettings) -> None:
    pod = TracedPod(OFF)
    assert pod.carry_out(settings).refusals == []
    assert (pod.trace(), pod.trace()) == ("", "")
    assert pod.written == [ON]


def test_a_pod_that_batches_is_switched_off_once_and_never_on() -> None:
    pod = TracedPod(ON)
    pod.carry_out(BATCHES)
    assert (pod.trace(), pod.trace(rate=8)) == ("", "")
    assert pod.written == [OFF]
    pod.carry_out({"forward": ModelSettings(2, 16)})
    pod.clock.now += 6
    pod.live = pod.read()
    pod.carry_out({"forward": ModelSettings(2, 16)})
    pod.trace()
    assert pod.written == [OFF, ON]


def test_a_pod_is_switched_off_before_it_is_made_to_batch() -> None:
    pod = TracedPod(ON)
    pod.trace(wanted=BATCHES)
    assert pod.written == [OFF]


def test_traces_that_are_not_wanted_any_more_are_switched_off() -> None:
    pod = TracedPod(ON)
    assert (pod.trace(rate=None), pod.trace(rate=None)) == ("", "")
    assert pod.written == [OFF]


def test_a_pod_that_refuses_trace_settings_does_not_keep_others_from_theirs() -> None:
    pod = TracedPod(ON)
    other = FakeTriton(tracing=dict(ON))
    unavailable = TritonError("p", "TraceSetting", "unavailable", refused=False)
    clients = {POD: pod.triton, ("serving", "q"): other}
    live = dict.fromkeys(clients, pod.live[POD])
    with (
        patch.object(pod.triton, "set_trace_settings", side_effect=unavailable),
        patch.object(pod.reader, "client", clients.get),
    ):
        problem = set_traces(pod.reader, live, {}, None)
    assert "unavailable" in problem
    assert other.tracing["trace_level"] == ["OFF"]


# --- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rps", "least", "rate"), [(0, 1, 1), (100, 1, 1), (101, 1, 2), (450, 1, 8), (80, 10, 10)]
)
def test_the_trace_rate_keeps_a_server_under_a_hundred_traces_a_second(
    rps: float, least: int, rate: int
) -> None:
    assert trace_rate(rps, least) == rate


def test_an_event_is_said_once_in_ten_minutes_and_shortened() -> None:
    kube, clock = FakeKube(), Clock()
    events = EventRecorder(kube, clock, "me")
    subject = Subject("serving", "assistant", "uid")
    assert events.normal(subject, "Promoted", "x" * 2000)
    assert not events.normal(subject, "Promoted", "x" * 2000)
    assert events.normal(subject, "Promoted", "y")
    clock.now += 601
    assert events.normal(subject, "Promoted", "y")
    assert [len(e["note"]) for e in kube.events] == [1024, 1, 1]
    kube.down = True
    assert not events.warning(subject, "Other", "the API server is away: logged, not raised")


def test_health_fails_when_the_loop_stands_still_or_a_watch_is_deaf() -> None:
    clock, deaf = Clock(), list[str]()
    health = Health(15.0, clock, lambda: deaf)
    clock.now += 59
    assert health.problem() == ""
    clock.now += 2
    assert "no tick for 61 s" in health.problem()
    health.ticked(clock.now)
    deaf.append("pods")
    assert "watch of pods" in health.problem()


def test_kopf_is_deaf_when_its_index_differs_from_the_api_server_three_times() -> None:
    kube = FakeKube()
    kube.put(resource())
    specs = Specs(kube)
    assert specs.bodies() is None  # the index is empty, the API server is not: not synced yet
    assert [specs.deaf() for _ in range(3) if not specs.compare()][-1] == ["inferenceslos"]
    kube.down = True
    assert specs.compare() is False
    kube.down = False
    kube.objects.clear()
    assert specs.compare()
    assert specs.deaf() == []
    assert specs.bodies() == []


def test_our_own_status_writes_are_no_news() -> None:
    specs = Specs(FakeKube())
    assert specs.is_news("u", 1, gone=False)
    assert not specs.is_news("u", 1, gone=False)
    assert specs.is_news("u", 2, gone=False)
    assert specs.is_news("u", 2, gone=True)
