"""Preprocessing on hosts without CPU to spare: it moves into a pool, which follows the load and goes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo_tuner.decide import decide
from slo_tuner.decision import Decision, Reason, StagePool, Verdict
from slo_tuner.levers.preprocess_pool import back
from slo_tuner.memory import PoolMemory, ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import ModelSettings, Remote
from slo_tuner.signal import Value
from slo_tuner.simulator.pipeline import Simulation
from slo_tuner.snapshot import PoolView, ServerView, StagePoolView
from tests.unit.tuner import builders
from tests.unit.tuner.builders import POOL, SETTINGS, pod, server, starved_rows
from tests.unit.tuner.loop_harness import Loop, as_found

NOW = 1_800_000_000.0
AUTO = Policy(Mode.AUTO, analysis_s=45.0, interval_s=15.0, min_samples=200)
DECLARED = StagePoolView(max_replicas=8, processes=2)


def full(name: str, **changes: object) -> object:
    """A pod whose host has nothing to spare: 0.9 of one core."""
    return pod(name, cpu_used_cores=Value(0.9), cpu_limit_cores=Value(1.0), **changes)


def starved(**changes: object) -> ServerView:
    values: dict[str, object] = {
        "pods": (full("a"), full("b")),
        "rows": (*starved_rows("a"), *starved_rows("b")),
        "stage_pool": DECLARED,
    }
    return server(**{**values, **changes})


def tick(
    view: ServerView, memory: ServerMemory | None = None, now: float = NOW, pool: PoolView = POOL
) -> Decision:
    return decide(view, pool, memory or ServerMemory(stable=SETTINGS), AUTO, now)


def advice(view: ServerView, lever: str) -> tuple[Verdict, str]:
    found = next(a for a in tick(view).assessment.levers if a.lever == lever)
    return found.verdict, found.why


# --- the lever --------------------------------------------------------------------------------------------------------


def test_a_host_without_cpu_rules_processes_out_and_the_pool_in_with_the_numbers() -> None:
    verdict, why = advice(starved(), "preprocess_instances")
    assert verdict is Verdict.INELIGIBLE
    assert "no CPU left: a uses 0.9 of 1.0 cores" in why
    verdict, why = advice(starved(), "preprocess_pool")
    assert verdict is Verdict.RECOMMENDED
    assert "a uses 0.9 of 1.0 cores" in why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage_pool": None}, "no preprocessPool is declared"),
        ({"pods": (pod("a"), pod("b"))}, "the hosts have CPU left, more processes are cheaper"),
    ],
)
def test_the_pool_is_not_for_everybody(changes: dict[str, object], words: str) -> None:
    verdict, why = advice(starved(**changes), "preprocess_pool")
    assert verdict is Verdict.INELIGIBLE
    assert words in why


def test_a_container_that_is_throttled_has_no_cpu_left_whatever_its_mean_says() -> None:
    held = tuple(pod(n, cpu_throttled_share=Value(0.6)) for n in ("a", "b"))
    verdict, why = advice(starved(pods=held), "preprocess_pool")
    assert verdict is not Verdict.INELIGIBLE
    assert "held back in 60% of their periods" in why


SLOW_POST = tuple(
    row
    for name in ("a", "b")
    for row in (
        builders.row(name, "preprocessing", 1200.0, 0.0, 0.004),
        builders.row(name, "forward", 1200.0, 0.010, 0.120),
        builders.row(name, "postprocessing", 1200.0, 0.100, 0.040),
        builders.row(name, "chat", 1200.0, 0.0, 0.0, latency_s=0.274),
    )
)
ONE_EACH = {**SETTINGS, "postprocessing": ModelSettings(1, 16)}


def test_postprocessing_moves_when_it_is_the_one_that_is_starved() -> None:
    """One process of 40 ms at 20 requests/s and more in bursts, behind a preprocessing that has nothing to do."""
    pods = tuple(full(name, settings=ONE_EACH) for name in ("a", "b"))
    view = starved(rows=SLOW_POST, pods=pods, models=builders.configs(ONE_EACH))
    found = tick(view, ServerMemory(stable=ONE_EACH)).assessment
    assert found.bottleneck is not None
    assert (found.bottleneck.reason, found.bottleneck.model) == ("InstanceSaturated", "postprocessing")
    moved = next(a for a in found.levers if a.lever == "preprocess_pool")
    assert moved.verdict is Verdict.RECOMMENDED
    assert moved.settings["postprocessing"].remote is not None


def test_a_postprocessing_that_is_not_starved_stays_where_it_is() -> None:
    found = tick(starved()).assessment
    moved = next(a for a in found.levers if a.lever == "preprocess_pool")
    assert set(moved.settings) == {"preprocessing"}


# --- the pool before the stage ----------------------------------------------------------------------------------------


def started(now: float = NOW) -> Decision:
    done = tick(starved(), now=now)
    assert done.reason is Reason.POOL_STARTING
    return done


def test_the_pool_is_there_before_a_stage_moves_into_it() -> None:
    first = started()
    assert first.stage_pool is not None
    wanted = first.stage_pool.replicas
    assert first.stage_pool.stages == ("preprocessing",)
    assert wanted >= 2, "one may be lost"
    assert all(s["preprocessing"] == SETTINGS["preprocessing"] for s in first.settings.values())

    half = replace(DECLARED, replicas=wanted, ready=wanted - 1, stages=("preprocessing",))
    waiting = tick(starved(stage_pool=half), first.memory, NOW + 15.0)
    assert waiting.reason is Reason.WAITING
    assert f"waiting for 1 of {wanted} replicas of the pool" in waiting.message

    rolling = replace(half, ready=wanted, stages=())
    assert tick(starved(stage_pool=rolling), first.memory, NOW + 15.0).reason is Reason.WAITING

    ready = replace(half, ready=wanted)
    canary = tick(starved(stage_pool=ready), first.memory, NOW + 30.0)
    assert canary.reason is Reason.CANARY_STARTED
    moved = canary.settings["a"]["preprocessing"]
    assert moved.remote is not None
    assert moved.remote.local_instances == SETTINGS["preprocessing"].instances
    assert back(moved) == SETTINGS["preprocessing"]
    assert canary.settings["b"]["preprocessing"] == SETTINGS["preprocessing"], "one pod first"
    assert canary.stage_pool == first.stage_pool


def test_a_pool_that_never_gets_ready_is_given_up_and_not_asked_for_again() -> None:
    first = started()
    late = tick(starved(), first.memory, NOW + 310.0)
    assert late.reason is Reason.POOL_GONE
    assert late.stage_pool == StagePool()
    again = tick(starved(), late.memory, NOW + 330.0)
    assert again.lever != "preprocess_pool"
    assert (
        next(a for a in again.assessment.levers if a.lever == "preprocess_pool").verdict is Verdict.EXHAUSTED
    )


def test_what_is_remembered_of_the_pool_may_be_lost_while_stages_are_in_it() -> None:
    """Its size is then found anew; it is never taken away."""
    away = {**SETTINGS, "preprocessing": ModelSettings(8, 16, remote=Remote(150))}
    pods = tuple(full(n, settings=away) for n in ("a", "b"))
    blind = starved(pods=pods, rows=(), stage_pool=replace(DECLARED, replicas=3, ready=3))
    assert tick(blind, ServerMemory(stable=away)).stage_pool is None
    seen = starved(pods=pods, stage_pool=replace(DECLARED, replicas=3, ready=3, stages=("preprocessing",)))
    found = tick(seen, ServerMemory(stable=away))
    assert found.stage_pool is not None
    assert found.stage_pool.replicas >= 2
    assert found.stage_pool.stages == ("preprocessing",)


def test_without_a_declared_pool_stages_come_home_at_once() -> None:
    away = {**SETTINGS, "preprocessing": ModelSettings(8, 16, remote=Remote(150, 2))}
    pods = tuple(full(n, settings=away) for n in ("a", "b"))
    memory = ServerMemory(stable=away, pool=PoolMemory(3, ("preprocessing",), NOW - 100.0))
    done = tick(starved(pods=pods, stage_pool=None), memory)
    assert done.settings["a"]["preprocessing"] == ModelSettings(2, 16)
    assert done.settings["b"]["preprocessing"] == away["preprocessing"], "pod by pod"
    assert done.stage_pool == StagePool()


# --- over time --------------------------------------------------------------------------------------------------------


def test_job_one_on_hosts_without_cpu_to_spare() -> None:
    """One core per pod, 90 % busy: the pool, then batching; 300 ms at 40 and at 80 requests/s on the same GPUs."""
    found = replace(as_found(0.030), cores_per_pod=1.0, other_cores=0.25, pool_limit=8, pool_processes=2)
    simulation = Simulation(replace(found, other_cores=0.2), 40.0, seed=3)
    loop = Loop(simulation)
    simulation.run_until(120.0)
    loop.run(480.0)
    assert loop.acted[0][1].reason is Reason.POOL_STARTING
    levers = [d.lever for _, d in loop.acted if d.reason is Reason.PROMOTED and d.memory.change is not None]
    assert levers[0] == "preprocess_pool"
    assert loop.worst_p99(simulation.now - 60.0) <= 0.3

    small = simulation.pool_replicas
    simulation.rate_rps = 80.0
    doubled = simulation.now
    loop.run(360.0)
    assert simulation.pool_replicas > small, "the pool follows the load"
    assert loop.worst_p99(doubled + 300.0) <= 0.3
    assert len(simulation.outstanding) == 2, "on the same GPUs"


def test_the_pool_shrinks_and_goes_when_it_is_not_needed_for_long() -> None:
    found = replace(as_found(0.030), cores_per_pod=1.0, other_cores=0.2, pool_limit=8, pool_processes=2)
    simulation = Simulation(found, 40.0, seed=4)
    loop = Loop(simulation)
    simulation.run_until(120.0)
    loop.run(300.0)
    assert simulation.settings("pod-a")["preprocessing"].remote is not None
    simulation.rate_rps = 6.0
    loop.run(3600.0)
    assert simulation.settings("pod-a")["preprocessing"] == ModelSettings(1, 16)
    assert simulation.settings("pod-b")["preprocessing"] == ModelSettings(1, 16)
    assert simulation.pool_replicas == 0
    gone = [d for _, d in loop.acted if d.reason is Reason.POOL_GONE]
    assert len(gone) == 1
