"""Reading a spec: defaults, the way into the tuner's types, and errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from slo_operator.api.resource import InferenceSLO, SpecError, parse_spec, parse_status
from slo_operator.api.spec import Engine, MIGPolicy, Workload
from slo_operator.api.status import InferenceSLOStatus
from slo_operator.api.to_tuner import pipelines_of, policy_of
from slo_tuner.objectives import Objective
from slo_tuner.policy import Mode, Policy
from slo_tuner.snapshot import Pipeline

SPEC: dict[str, Any] = {
    "mode": "Auto",
    "pools": [{"name": "a100", "nodeSelector": {"gpu": "a100"}, "maxGPUs": 4}],
    "servers": [
        {
            "name": "chat",
            "pool": "a100",
            "image": "triton:1",
            "repository": {"path": "/models"},
            "models": [
                {
                    "name": "pipe",
                    "stages": {"preprocess": ["tok"], "forward": ["fwd"]},
                    "slo": {"latency": {"p50": "100ms", "p99": "300ms", "mean": "0.12s"}, "throughput": 80},
                    "limits": {
                        "batchSize": {"max": 16},
                        "queueDelay": {"max": "5ms"},
                        "preprocessInstances": {"max": 6},
                    },
                }
            ],
        }
    ],
    "rollout": {"analysis": "45s", "maxExtraMisses": "0.5%"},
}


def test_what_is_not_said_has_careful_defaults() -> None:
    minimal = {
        "pools": SPEC["pools"],
        "servers": [{**SPEC["servers"][0], "models": [{"name": "m", "slo": {"latency": {"p99": "1s"}}}]}],
    }
    spec = parse_spec(minimal)
    server = spec.servers[0]
    assert spec.mode is Mode.OBSERVE
    assert not spec.suspend
    assert spec.pools[0].mig.policy is MIGPolicy.NEVER
    assert (server.workload, server.engine, server.accelerator.gpus) == (Workload.ONLINE, Engine.GENERIC, 1)
    assert (server.replicas.min, server.replicas.max) == (1, 1)
    assert server.managed
    assert spec.rollout.min_samples == 500


def test_mode_and_rollout_are_the_tuners_policy() -> None:
    assert policy_of(parse_spec(SPEC), interval_s=5.0) == Policy(
        mode=Mode.AUTO,
        suspend=False,
        min_samples=500,
        analysis_s=45.0,
        max_extra_misses=0.005,
        reloads_per_hour=12,
        interval_s=5.0,
    )


def test_a_served_model_is_a_pipeline_with_its_strictest_objective_first() -> None:
    assert pipelines_of(parse_spec(SPEC).servers[0]) == (
        Pipeline(
            model="pipe",
            preprocess=("tok",),
            forward=("fwd",),
            postprocess=(),
            objectives=(
                Objective("latency", 0.99, 0.3),
                Objective("latency", 0.5, 0.1),
                Objective("latency", None, 0.12),
            ),
            max_batch_size=16,
            max_queue_delay_us=5000,
            max_preprocess_instances=6,
            min_batch_size=1,
            window_s=300.0,
            throughput_rps=80.0,
        ),
    )


def test_objectives_are_named_as_people_write_them() -> None:
    names = [o.name for o in pipelines_of(parse_spec(SPEC).servers[0])[0].objectives]
    assert names == ["latency.p99", "latency.p50", "latency.mean"]


def test_every_wrong_field_is_named_at_once() -> None:
    server = {**SPEC["servers"][0], "replicas": {"min": "2", "max": 3}, "colour": "red"}
    del server["pool"]
    with pytest.raises(SpecError) as error:
        parse_spec({**SPEC, "servers": [server], "suspend": "yes"})
    assert set(error.value.problems) == {
        "spec.suspend: Input should be a valid boolean",
        "spec.servers[0].pool: this field is required",
        "spec.servers[0].replicas.min: Input should be a valid integer",
        "spec.servers[0].colour: there is no such field",
    }


@pytest.mark.parametrize(
    ("p99", "problem"),
    [
        (300, "a duration with a unit, such as 300ms (got 300)"),
        ("0s", "a duration above zero, such as 300ms (got '0s')"),
    ],
)
def test_a_wrong_value_is_repeated_beside_what_would_be_right(p99: object, problem: str) -> None:
    models = [{"name": "m", "slo": {"latency": {"p99": p99}}}]
    with pytest.raises(SpecError) as error:
        parse_spec({**SPEC, "servers": [{**SPEC["servers"][0], "models": models}]})
    assert error.value.problems == (f"spec.servers[0].models[0].slo.latency.p99: {problem}",)


def test_the_spec_comes_back_as_it_was_written() -> None:
    written = parse_spec(SPEC).to_json()
    assert parse_spec(written) == parse_spec(SPEC)
    assert (
        written["servers"][0]["models"][0]["slo"]["latency"]
        == SPEC["servers"][0]["models"][0]["slo"]["latency"]
    )
    assert written["pools"][0]["maxGPUs"] == 4


def test_a_body_from_the_api_server_is_read_whole() -> None:
    body = {
        "metadata": {
            "namespace": "serving",
            "name": "assistant",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "7",
        },
        "spec": SPEC,
        "status": {"observedGeneration": 2, "conditions": []},
    }
    resource = InferenceSLO.parse(body)
    assert (resource.namespace, resource.name, resource.generation, resource.deleting) == (
        "serving",
        "assistant",
        3,
        False,
    )
    assert resource.status.observed_generation == 2
    assert resource.owner_reference() == {
        "apiVersion": "inferenceslo.dev/v1alpha1",
        "kind": "InferenceSLO",
        "name": "assistant",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_a_status_of_another_release_never_stops_the_loop() -> None:
    assert parse_status({"observedGeneration": 4, "futureField": 1}).observed_generation == 4
    assert parse_status({"observedGeneration": "soon"}) == InferenceSLOStatus()
    assert parse_status(None) == InferenceSLOStatus()
