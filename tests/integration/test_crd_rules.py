"""Every rule of the CRD on a real API server: what it takes, what it refuses, and with which words.

Each case is also read by the pydantic models, which must agree: a spec that the command line accepts is one that
the cluster accepts.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from slo_operator.api.resource import SpecError, parse_spec
from tests.integration.crd_cases import CASES, LATENCY, LATER, Case
from tests.integration.resources import SPEC, refusal, resource, with_values


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_rule_takes_what_is_right_and_names_what_is_wrong(
    case: Case, api_client: client.ApiClient, namespace: str
) -> None:
    good, bad = with_values(SPEC, case.good), with_values(SPEC, case.bad)
    assert refusal(api_client, resource(namespace, spec=good)) is None
    answer = refusal(api_client, resource(namespace, spec=bad))
    assert answer is not None
    assert case.named_field in answer
    assert case.message in answer
    parse_spec(good)
    with pytest.raises(SpecError) as error:
        parse_spec(bad)
    if not case.own_words:
        assert case.message in str(error.value)


@pytest.mark.parametrize(("values", "message"), LATER, ids=[message for _, message in LATER])
def test_what_only_the_operator_can_refuse_is_named_as_well(
    values: dict[str, Any], message: str, api_client: client.ApiClient, namespace: str
) -> None:
    spec = with_values(SPEC, values)
    assert refusal(api_client, resource(namespace, spec=spec)) is None
    with pytest.raises(SpecError) as error:
        parse_spec(spec)
    assert message in str(error.value)


def test_a_misspelt_field_is_refused_by_name(api_client: client.ApiClient, namespace: str) -> None:
    spec = with_values(SPEC, {f"{LATENCY}.p99Millis": 250})
    answer = refusal(api_client, resource(namespace, spec=spec))
    assert answer is not None
    assert "unknown field" in answer
    assert "p99Millis" in answer
    with pytest.raises(
        SpecError, match=r"spec.servers\[0\].models\[0\].slo.latency.p99Millis: there is no such field"
    ):
        parse_spec(spec)


@pytest.mark.parametrize("name", ["a" * 33, "Chat", "chat.v2", "2chat"])
def test_names_that_make_no_service_names_are_refused(
    name: str, api_client: client.ApiClient, namespace: str
) -> None:
    answer = refusal(api_client, resource(namespace, name=name))
    assert answer is not None
    assert "metadata.name" in answer
