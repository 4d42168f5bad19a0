"""What the demo reads off the cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml

from demo.setup import GATEWAY, SAMPLE, gateway_manifest, resource_manifest
from demo.watching import Watcher, bottleneck, gpus_requested, recent_records, settings_text
from devcluster.gateway.records import Record
from slo_operator.api.status import BottleneckStatus, InferenceSLOStatus, ModelSettingsStatus, ModelStatus

pytestmark = pytest.mark.unit


def pod(phase: str, gpus: str | None) -> dict[str, object]:
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {"spec": {"containers": [{"resources": resources}, {}]}, "status": {"phase": phase}}


def test_gpus_count_until_the_pod_has_ended() -> None:
    assert gpus_requested(pod("Running", "2")) == 2
    assert gpus_requested(pod("Pending", "2")) == 2
    assert gpus_requested(pod("Succeeded", "2")) == 0
    assert gpus_requested(pod("Running", None)) == 0


def model(name: str, reason: str) -> ModelStatus:
    return ModelStatus(
        server="chat",
        name=name,
        bottleneck=BottleneckStatus(reason=reason),
        settings=[
            ModelSettingsStatus(model="preprocessing", instances=4),
            ModelSettingsStatus(model="forward-small", instances=2, max_batch_size=8, queue_delay="5ms"),
        ],
    )


def test_a_model_that_suffers_speaks_for_all() -> None:
    status = InferenceSLOStatus(models=[model("a", "None"), model("b", "PreprocessStarved")])
    assert bottleneck(status) == "PreprocessStarved"
    assert bottleneck(InferenceSLOStatus(models=[model("a", "None")])) == "None"
    assert bottleneck(InferenceSLOStatus()) == ""


def test_settings_are_told_once_per_model() -> None:
    status = InferenceSLOStatus(models=[model("a", "None"), model("b", "None")])
    assert settings_text(status) == "forward-small ×2 batches ≤ 8 after 5ms; preprocessing ×4"


def test_recent_requests_are_those_due_since() -> None:
    records = [Record(n, "load", "m", float(n), float(n), 0.1, 200, "a") for n in range(100)]
    assert sorted(r.scheduled for r in recent_records(records, 97)) == [97, 98, 99]


def test_the_sample_is_applied_in_observe_whatever_it_says() -> None:
    documents = list(yaml.safe_load_all(resource_manifest(SAMPLE.read_text(), "Observe")))
    assert [d["spec"]["mode"] for d in documents if d["kind"] == "InferenceSLO"] == ["Observe"]


@pytest.mark.parametrize("histogram", [True, False])
def test_the_gateway_publishes_its_histogram_unless_told_not_to(histogram: bool) -> None:
    made = yaml.safe_load(gateway_manifest(GATEWAY.read_text(), histogram))
    arguments = made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--no-histogram" in arguments) is not histogram


async def test_decisions_of_the_same_second_keep_their_order() -> None:
    """The history has the newest first."""

    class FakeKube:
        async def get(self, path: str) -> dict[str, object]:
            told = [("Promoted", "05:00:01"), ("Promoting", "05:00:01"), ("CanaryStarted", "05:00:00")]
            history = [{"reason": r, "message": r, "time": f"2026-12-01T{t}Z"} for r, t in told]
            return {"status": {"history": history}}

    fake: object = FakeKube()
    watcher = Watcher(fake, fake, fake, "serving", "assistant")  # type: ignore[arg-type]
    await watcher._look_at_status()
    assert [d.reason for d in watcher.decisions] == ["CanaryStarted", "Promoting", "Promoted"]
    assert watcher.last_decision_at == datetime(2026, 12, 1, 5, 0, 1, tzinfo=UTC).timestamp()
