"""The loop against the simulator: job 1 from as found to within 300 ms at 40 and at 80 requests/s, on the same GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo_tuner.decision import BottleneckReason, Reason, SLOState
from slo_tuner.policy import Mode
from slo_tuner.settings import ModelSettings
from slo_tuner.simulator.pipeline import Simulation
from tests.unit.tuner.loop_harness import Loop, as_found


def promoted(loop: Loop) -> list[str]:
    """Levers in the order in which they reached every pod."""
    return [
        d.lever or "" for _, d in loop.acted if d.reason is Reason.PROMOTED and d.memory.change is not None
    ]


def test_job_one_from_as_found_to_twice_the_traffic() -> None:
    simulation = Simulation(as_found(), 40.0, seed=1)
    loop = Loop(simulation)
    loop.policy = replace(loop.policy, mode=Mode.OBSERVE)
    loop.run(150.0)
    found = loop.decisions[-1][1].assessment
    assert loop.worst_p99(20.0) > 0.55
    assert found.bottleneck is not None
    assert found.bottleneck.reason is BottleneckReason.PREPROCESS_STARVED
    assert found.bottleneck.evidence["outside_gpu_ms"] > 300
    assert found.bottleneck.evidence["gpu_busy"] == pytest.approx(0.3, abs=0.03)
    assert any(o.state is SLOState.MISSED for o in found.objectives)
    assert loop.loads == 0, "Observe writes nothing"

    loop.policy = replace(loop.policy, mode=Mode.AUTO)
    switched = simulation.now
    loop.run(480.0)
    levers = promoted(loop)
    assert levers[0] == "preprocess_instances"
    assert levers[1] in ("batching", "instances")
    last = max(t for t, d in loop.acted if d.reason is Reason.PROMOTED and d.memory.change is not None)
    assert last - switched <= 400.0, "60 s more to see it and 60 s to confirm it are within 480 s or close"
    assert loop.worst_p99(simulation.now - 60.0) <= 0.3

    doubled = simulation.now
    simulation.rate_rps = 80.0
    loop.run(300.0)
    assert loop.worst_p99(doubled + 240.0) <= 0.3
    assert len(simulation.outstanding) == 2, "on the same four GPUs"
    assert all("mig" not in (d.lever or "") for _, d in loop.decisions)


def test_an_untuned_server_at_a_load_that_overloads_two_stages_is_mastered_too() -> None:
    """56 requests/s on the untuned server: preprocessing and the busiest forward model are both overloaded."""
    simulation = Simulation(as_found(), 56.0, seed=2)
    loop = Loop(simulation)
    simulation.run_until(100.0)
    loop.run(600.0)
    assert promoted(loop)[0] == "preprocess_instances"
    assert loop.worst_p99(simulation.now - 60.0) <= 0.3


def test_a_tuned_server_is_left_alone() -> None:
    """Steady state: no load, no event, the same words tick after tick."""
    found = as_found()
    tuned = {
        **found.start,
        "preprocessing": ModelSettings(5, 16),
        **{f"forward-{v}": ModelSettings(4, 16) for v in ("small", "base", "large")},
    }
    simulation = Simulation(replace(found, start=tuned), 30.0, seed=5)
    simulation.run_until(120.0)
    loop = Loop(simulation)
    loop.run(150.0)
    assert loop.loads == 0
    assert loop.acted == []
    assert len({d.message for _, d in loop.decisions}) == 1
