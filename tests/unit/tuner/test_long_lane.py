"""Long requests that others wait behind: measured by size, and given members of their own where that helps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slo_tuner.capacity.lanes import Members, Size, time_in_pool
from slo_tuner.decide import decide
from slo_tuner.decision import LeverAdvice, Verdict
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import LongLane, ModelSettings, Remote
from slo_tuner.signal import Value
from slo_tuner.snapshot import SizeView, StagePoolView
from tests.unit.tuner.builders import POOL, SETTINGS, pod, server, starved_rows

SHORT, LONG = Size(2048.0, 0.995, 0.02), Size(65536.0, 0.005, 1.0)
TWO_OF_TWO = Members(count=2, processes=2, senders=2)


# --- the pool by trial ------------------------------------------------------------------------------------------------


def test_alone_in_the_pool_a_request_takes_what_it_takes() -> None:
    assert time_in_pool((SHORT, LONG), 0.01, TWO_OF_TWO, 0.99) == pytest.approx(0.02)
    assert time_in_pool((SHORT, LONG), 0.01, TWO_OF_TWO, 0.999) == pytest.approx(1.0)
    assert time_in_pool((SHORT, LONG), 0.01, TWO_OF_TWO, None) == pytest.approx(0.0249, rel=0.1)


def test_one_process_is_the_textbook_queue() -> None:
    """M/D/1 at half load: the mean wait is ρ/(2(1 − ρ)) of the service time, one half."""
    one = Members(count=1, processes=1, senders=1)
    assert time_in_pool((Size(512.0, 1.0, 0.1),), 5.0, one, None) == pytest.approx(0.15, rel=0.06)


def test_behind_rare_long_requests_others_wait_and_a_lane_ends_that() -> None:
    mixed = time_in_pool((SHORT, LONG), 80.0, TWO_OF_TWO, 0.99)
    laned = time_in_pool((SHORT, LONG), 80.0, replace(TWO_OF_TWO, long_members=1, long_bytes=2048), 0.99)
    assert mixed > 0.3
    assert laned < 0.2


def test_a_lane_with_more_work_than_it_can_do_is_hopeless() -> None:
    lane = replace(TWO_OF_TWO, long_members=1, long_bytes=2048)
    assert time_in_pool((SHORT, LONG), 150.0, lane, 0.99) == math.inf, (
        "2.985 s of work per second for 2 processes"
    )
    assert time_in_pool((SHORT, LONG), 150.0, TWO_OF_TWO, 0.99) < math.inf


# --- the lever --------------------------------------------------------------------------------------------------------


def sizes(short_wait_s: float, long_s: float = 1.0) -> tuple[SizeView, ...]:
    """A minute at 40 requests/s, 0.5 % of them long."""
    return (
        SizeView(2048.0, 2388.0, 0.02 + short_wait_s, 0.02),
        SizeView(65536.0, 12.0, long_s + short_wait_s, long_s),
    )


def advice(found: tuple[SizeView, ...], lane: LongLane | None = None, ready: int = 2) -> LeverAdvice:
    """What is said of the pool's lever while the stage runs in it."""
    away = ModelSettings(16, 16, remote=Remote(500, 1, lane))
    settings = {**SETTINGS, "preprocessing": away}
    pool = StagePoolView(
        max_replicas=4,
        processes=2,
        replicas=ready,
        ready=ready,
        stages=("preprocessing",),
        service_s={"preprocessing": 0.024},
        network_s=Value(0.0),
        sizes={"preprocessing": found} if found else {},
    )
    full = {"cpu_used_cores": Value(0.9), "cpu_limit_cores": Value(1.0), "settings": settings}
    view = server(
        pods=(pod("a", **full), pod("b", **full)),
        rows=(*starved_rows("a"), *starved_rows("b")),
        stage_pool=pool,
    )
    policy = Policy(Mode.AUTO, analysis_s=45.0, interval_s=15.0, min_samples=200)
    decision = decide(view, POOL, ServerMemory(stable=settings), policy, 1_800_000_000.0)
    return next(one for one in decision.assessment.levers if one.lever == "preprocess_pool")


def test_a_lane_is_offered_where_long_requests_make_others_wait() -> None:
    said = advice(sizes(short_wait_s=0.05))
    assert said.verdict is not Verdict.INELIGIBLE
    wanted = said.settings["preprocessing"]
    assert wanted.remote == Remote(500, 1, LongLane(2048, 1))
    assert wanted.instances == 16
    assert "requests of 2048 bytes and more to 1 of 2 replicas" in said.why
    assert "wait by size: < 2048 B 50 ms" in said.why


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((), "how long requests wait in the pool is not known yet"),
        ((SizeView(2048.0, 9.0, 0.02, None),), "how long requests wait in the pool is not known yet"),
        (sizes(0.001), "requests wait 1 ms there, too little for a second lane (wait by size: < 2048 B 1 ms"),
        (sizes(0.05, long_s=0.03), "a second lane would not change that much"),
    ],
    ids=["nothing measured", "too few requests", "hardly any waiting", "no long requests"],
)
def test_without_a_reason_there_is_no_second_lane(found: tuple[SizeView, ...], words: str) -> None:
    said = advice(found)
    assert said.verdict is Verdict.INELIGIBLE
    assert words in said.why


def test_one_member_cannot_be_two_lanes() -> None:
    assert advice(sizes(0.05), ready=1).verdict is Verdict.INELIGIBLE


def test_a_lane_that_is_there_is_not_asked_for_again() -> None:
    assert advice(sizes(0.05), lane=LongLane(2048, 1)).verdict is Verdict.INELIGIBLE


def test_a_lane_that_only_takes_room_from_the_short_requests_is_given_up() -> None:
    """No request is long any more, and one process of two members has to do all the work."""
    short = (SizeView(2048.0, 2400.0, 0.07, 0.02), SizeView(4096.0, 10.0, 0.07, 0.02))
    said = advice(short, lane=LongLane(4096, 1))
    assert said.verdict is not Verdict.INELIGIBLE
    assert said.settings["preprocessing"].remote == Remote(500, 1)
    assert "one lane again" in said.why
