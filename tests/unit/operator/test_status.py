"""Status and conditions: what flips, what is written, what stays."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_operator.api.spec import Server
from slo_operator.api.status import ConditionType, InferenceSLOStatus
from slo_operator.conditions import Finding, merge_conditions
from slo_operator.observe.records import DeploymentRecord, Meta
from slo_operator.outcome import ResourceOutcome, ServerOutcome
from slo_operator.publish import without_empty
from slo_operator.status import build, differs, next_status
from slo_tuner.decision import Assessment, Decision, ObjectiveState, Reason, SLOState
from slo_tuner.memory import ServerMemory
from slo_tuner.snapshot import ServerView
from tests.unit.operator.fakes import resource

SERVER = Server.model_validate(resource()["spec"]["servers"][0])
META = Meta("serving", "assistant-chat", "u", "1", owner="uid")
DEPLOYMENT = DeploymentRecord(META, "d", {}, 2, 1, 1, 2, 2, 2, {})
VIEW = ServerView("serving", "assistant", "chat", "a100", 2, 2, 2, 2, True, (), {}, ())
T0 = 1_800_000_000.0


def objective(
    attainment: float | None = 0.995, state: SLOState = SLOState.MET, observed: float | None = 0.25
) -> ObjectiveState:
    return ObjectiveState(
        "assistant", "latency.p99", 0.3, state, 0.99, observed, attainment, message="so many"
    )


def outcome(
    *objectives: ObjectiveState,
    metrics: bool = True,
    shortfall: int = 0,
    acted: bool = False,
    reason: Reason = Reason.SLO_MET,
    suspend: bool = False,
    **server: object,
) -> ResourceOutcome:
    assessment = Assessment(objectives, metrics_available=metrics, shortfall_gpus=shortfall)
    decision = Decision(reason, "m", assessment, ServerMemory(), acted=acted)
    one = ServerOutcome(SERVER, DEPLOYMENT, VIEW, decision)
    return ResourceOutcome(1, suspend, (replace(one, **server),))  # type: ignore[arg-type]


def conditions(status: InferenceSLOStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status.value, c.reason) for c in status.conditions}


def test_ready_does_not_depend_on_the_slo() -> None:
    missed = build(InferenceSLOStatus(), outcome(objective(0.5, SLOState.MISSED, 0.9)), T0)
    assert conditions(missed)["SLOMet"] == ("False", "Missed")
    assert conditions(missed)["Ready"] == ("True", "PodsReady")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (objective(0.995, SLOState.MET), ("True", "Met")),
        (objective(0.992, SLOState.UNDECIDED), ("True", "Undecided")),
        (objective(0.985, SLOState.UNDECIDED), ("False", "Undecided")),
        (objective(0.90, SLOState.MISSED), ("False", "Missed")),
        (objective(None, SLOState.NOT_MEASURABLE, None), ("Unknown", "NotMeasurable")),
        (objective(None, SLOState.IDLE, None), ("Unknown", "Idle")),
    ],
)
def test_slo_met_follows_the_point_estimate_and_its_reason_the_certainty(
    state: ObjectiveState, expected: tuple[str, str]
) -> None:
    assert conditions(build(InferenceSLOStatus(), outcome(state), T0))["SLOMet"] == expected


def test_one_missed_model_is_enough_and_one_that_cannot_be_measured_is_not_met() -> None:
    both = outcome(objective(), objective(0.5, SLOState.MISSED, 0.9))
    assert conditions(build(InferenceSLOStatus(), both, T0))["SLOMet"] == ("False", "Missed")
    blind = outcome(objective(), objective(None, SLOState.NOT_MEASURABLE, None))
    assert conditions(build(InferenceSLOStatus(), blind, T0))["SLOMet"] == ("Unknown", "NotMeasurable")


def test_a_transition_time_moves_only_when_the_status_flips() -> None:
    first = build(InferenceSLOStatus(), outcome(objective()), T0)
    again = build(first, outcome(objective(0.992, SLOState.UNDECIDED)), T0 + 100)
    times = {c.type: c.last_transition_time for c in again.conditions}
    assert times["SLOMet"] == "2027-01-15T08:00:00Z"
    assert conditions(again)["SLOMet"] == ("True", "Undecided")
    flipped = build(again, outcome(objective(0.9, SLOState.MISSED)), T0 + 200)
    times = {c.type: c.last_transition_time for c in flipped.conditions}
    assert times["SLOMet"] == "2027-01-15T08:03:20Z"
    assert times["Ready"] == "2027-01-15T08:00:00Z"


def test_noise_is_not_written_but_a_change_of_more_than_a_tenth_is() -> None:
    old = build(InferenceSLOStatus(), outcome(objective(observed=0.250)), T0)
    assert next_status(old, outcome(objective(observed=0.260)), T0 + 5, T0) is None
    new = next_status(old, outcome(objective(observed=0.290)), T0 + 5, T0)
    assert new is not None
    assert new.summary is not None
    assert new.summary.p99 == "290ms/300ms"


def test_figures_are_refreshed_after_ten_minutes_and_on_every_decision_that_acted() -> None:
    old = build(InferenceSLOStatus(), outcome(objective(observed=0.250)), T0)
    slightly = objective(observed=0.255)
    assert next_status(old, outcome(slightly), T0 + 599, T0) is None
    assert next_status(old, outcome(slightly), T0 + 600, T0) is not None
    assert next_status(old, outcome(slightly, acted=True), T0 + 5, T0) is not None


def test_the_same_outcome_again_is_never_written_even_after_ten_minutes() -> None:
    seen = outcome(objective())
    old = build(InferenceSLOStatus(), seen, T0)
    assert next_status(old, seen, T0 + 5000, T0) is None


def test_history_holds_the_twenty_latest_decisions_that_acted() -> None:
    status = InferenceSLOStatus()
    for i in range(25):
        status = build(status, outcome(objective(), acted=True, reason=Reason.PROMOTING), T0 + i)
        status = build(status, outcome(objective()), T0 + i)
    assert len(status.history) == 20
    assert status.history[0].time == "2027-01-15T08:00:24Z"


def test_capacity_metrics_and_suspension_have_their_own_conditions() -> None:
    short = conditions(build(InferenceSLOStatus(), outcome(shortfall=2, metrics=False, suspend=True), T0))
    assert short["CapacityAvailable"] == ("False", "NoCapacity")
    assert short["MetricsAvailable"] == ("False", "Unavailable")
    assert short["Suspended"] == ("True", "SuspendedBySpec")


def test_a_rollout_without_progress_is_stalled_and_not_reconciling() -> None:
    stuck = replace(DEPLOYMENT, updated=1, stuck="ReplicaSet has timed out progressing.")
    found = conditions(build(InferenceSLOStatus(), outcome(deployment=stuck), T0))
    assert found["Stalled"] == ("True", "RolloutStuck")
    assert found["Reconciling"] == ("False", "UpToDate")


def test_evidence_that_is_no_number_does_not_reach_the_api_server() -> None:
    odd = Decision(
        Reason.PROMOTED, "m", Assessment(), ServerMemory(), evidence={"a": math.nan, "b": math.inf, "c": 1.5},
        acted=True,
    )  # fmt: skip
    status = build(
        InferenceSLOStatus(), ResourceOutcome(1, servers=(ServerOutcome(SERVER, decision=odd),)), T0
    )
    assert status.last_decision is not None
    assert status.last_decision.evidence == {"c": 1.5}


def test_counts_and_words_are_compared_exactly() -> None:
    assert differs({"pods": "1/2"}, {"pods": "2/2"})
    assert differs({"replicas": 100}, {"replicas": 101})
    assert differs({"reason": "A"}, {"reason": "B"})
    assert not differs({"rate": "40.0"}, {"rate": "41.5"})
    assert not differs({"message": "12 requests"}, {"message": "900 requests"})
    assert not differs({"time": "0.2ms"}, {"time": "0.4ms"})


def test_empty_maps_and_lists_are_left_out_at_every_depth() -> None:
    assert without_empty({"a": {}, "b": [{"c": {}, "d": 0}], "e": ""}) == {"b": [{"d": 0}], "e": ""}


findings = st.lists(
    st.builds(
        Finding,
        type=st.sampled_from(list(ConditionType)),
        holds=st.sampled_from([True, False, None]),
        reason=st.sampled_from(["A", "B"]),
        message=st.text(max_size=5),
    ),
    unique_by=lambda f: f.type,
    max_size=len(ConditionType),
)


@given(st.lists(st.tuples(findings, st.integers(1, 1000)), min_size=1, max_size=8))
def test_conditions_always_have_reason_generation_and_a_time_of_their_last_flip(
    ticks: list[tuple[list[Finding], int]],
) -> None:
    now = T0
    old: list = []  # type: ignore[type-arg]
    for generation, (found, pause) in enumerate(ticks):
        now += pause
        new = merge_conditions(old, found, generation, now)
        before = {c.type: c for c in old}
        for c, f in zip(new, found, strict=True):
            assert c.reason == f.reason
            assert c.observed_generation == generation
            known = before.get(c.type)
            moved = known is None or known.last_transition_time != c.last_transition_time
            assert moved == (known is None or known.status is not c.status)
        old = new


@given(st.floats(0.001, 100), st.floats(0.0, 0.09))
def test_a_figure_within_nine_percent_never_causes_a_write(value: float, share: float) -> None:
    one = objective(0.995, observed=value)
    other = objective(0.995, observed=value * (1 + share * 0.9))
    old = build(InferenceSLOStatus(), outcome(one), T0)
    new = next_status(old, outcome(other), T0 + 5, T0)
    # printing rounds to two or three digits, which may add up to half a digit on either side
    assert new is None or share > 0.04
