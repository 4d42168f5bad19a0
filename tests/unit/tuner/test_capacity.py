"""The queueing model against known formulas and against the event simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as config
from hypothesis import strategies as st

from slo_tuner.capacity.batches import BatchCurve, curve, merge, steps_up
from slo_tuner.capacity.pipeline import StageLoad, predict
from slo_tuner.capacity.queueing import GRID_S, Load, Stage, poisson, sojourn, utilisation
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.simulator.pipeline import Scenario, SimModel, SimPipeline, Simulation
from slo_tuner.snapshot import BatchTime
from slo_tuner.stats import mean, quantile

FORWARD = BatchCurve(((1, 0.12), (16, 0.21)))
ONE = BatchCurve(((1, 0.1),))


def mean_of(pmf: tuple[float, ...]) -> float:
    return GRID_S * math.fsum(i * p for i, p in enumerate(pmf))


def test_md1_wait_is_pollaczek_khinchine() -> None:
    # M/D/1 at ρ = 0.7: W = ρ s / (2 (1 − ρ)) = 0.7 × 0.1 / 0.6 = 0.1167 s, plus the service of 0.1 s
    steady = Load(7.0, 7.0)
    assert mean_of(sojourn(Stage(ONE, 1), steady).quiet) == pytest.approx(0.2167, rel=0.03)


def test_overload_in_bursts_backs_up_for_seconds_and_drains() -> None:
    # 1.6 × 8 = 12.8 rps on 10: after 5 s some 14 are waiting, 1.4 s
    times = sojourn(Stage(ONE, 1), Load(8.0, 12.8))
    assert 0.6 < mean_of(times.burst) < 1.5
    assert mean_of(times.quiet) < mean_of(times.burst)


def test_an_idle_batching_stage_costs_service_and_delay() -> None:
    times = sojourn(Stage(FORWARD, 2, 16, 0.005), Load(0.01, 0.01))
    assert mean_of(times.quiet) == pytest.approx(0.125, abs=0.004)


def test_batching_lifts_the_limit_of_an_instance() -> None:
    # 20 rps on 2 instances of 120 ms need 1.2; in batches of 16 (210 ms): 20 × 0.21 / 32 = 0.13
    assert utilisation(Stage(FORWARD, 2), 20.0) == pytest.approx(1.2)
    assert utilisation(Stage(FORWARD, 2, 16, 0.001), 20.0) == pytest.approx(0.131, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "processes", "instances", "batching", "tolerance"),
    [
        (20.0, 1, 4, None, 0.25),  # starved preprocessing: the forward stage idles
        (20.0, 4, 2, 1_000, 0.08),
        (40.0, 4, 2, 1_000, 0.08),
        (40.0, 5, 4, 5_000, 0.12),
        (20.0, 4, 3, None, 0.20),
    ],
)
def test_predicted_p99_is_that_of_the_simulation(
    rate: float, processes: int, instances: int, batching: int | None, tolerance: float
) -> None:
    """One pod, bursts of 1.6 × for 5 s in 20 s; half of the traffic goes to this forward model."""
    b = None if batching is None else Batching(batching)
    models = (
        SimModel("pre", 0.028, 0.0, 0.25),
        SimModel("fwd", 0.114, 0.006, 0.0, 0.1),
        SimModel("rest", 0.1, 0.0, 0.0, 0.1),
    )
    settings = {
        "pre": ModelSettings(processes, 16),
        "fwd": ModelSettings(instances, 16, b),
        "rest": ModelSettings(64, 16),
    }
    traffic = (SimPipeline("chat", ("pre", "fwd"), 0.5), SimPipeline("other", ("pre", "rest"), 0.5))
    simulation = Simulation(
        Scenario(models, traffic, settings, pods=("p",), cores_per_pod=64.0), rate, seed=11
    )
    simulation.run_until(500.0)
    measured = quantile(
        [r.end - r.start for r in simulation.done if r.model == "chat" and r.start > 20.0], 0.99
    )

    load = Load(rate, 1.6 * rate)
    stages = (
        StageLoad(Stage(BatchCurve(((1, 0.028),)), processes, 1, None, 0.06), load),
        StageLoad(
            Stage(FORWARD, instances, 16, None if batching is None else batching / 1e6), load.scaled(0.5)
        ),
    )
    assert predict(stages, load.scaled(0.5), 0.99, 0.3).quantile_s == pytest.approx(measured, rel=tolerance)


def test_the_simulation_is_reproducible_and_keeps_its_rate() -> None:
    scenario = Scenario(
        (SimModel("m", 0.01),), (SimPipeline("m", ("m",), 1.0),), {"m": ModelSettings(1, 0)}, pods=("p", "q")
    )
    first, second = Simulation(scenario, 50.0, seed=3), Simulation(scenario, 50.0, seed=3)
    first.run_until(200.0)
    second.run_until(200.0)
    assert [r.end for r in first.done] == [r.end for r in second.done]
    assert len(first.done) == pytest.approx(10_000, rel=0.03)
    in_bursts = sum(r.start % 20.0 < 5.0 for r in first.done) / len(first.done)
    assert in_bursts == pytest.approx(0.4, abs=0.02)  # 5 s at 1.6 of 20 s


def test_the_simulated_service_time_is_the_configured_one() -> None:
    scenario = Scenario(
        (SimModel("m", 0.1, 0.0, 0.3),),
        (SimPipeline("m", ("m",), 1.0),),
        {"m": ModelSettings(4, 0)},
        pods=("p",),
    )
    simulation = Simulation(scenario, 5.0, seed=1)
    simulation.run_until(400.0)
    assert mean([r.stages["m"][1] for r in simulation.done]) == pytest.approx(0.1, rel=0.05)


def test_batch_times_of_pods_are_pooled_by_executions() -> None:
    assert merge((BatchTime(2, 10, 0.1), BatchTime(2, 30, 0.2), BatchTime(1, 5, 0.05))) == (
        BatchTime(1, 5, 0.05),
        BatchTime(2, 40, 0.175),
    )


def test_a_curve_never_falls_with_the_batch() -> None:
    # 2 was measured faster than 1 (noise): both become their weighted mean (3 × 0.12 + 1 × 0.10) / 4 = 0.115
    found = curve((BatchTime(1, 3, 0.12), BatchTime(2, 1, 0.10), BatchTime(4, 5, 0.14)), 0.12)
    assert [b for b, _ in found.points] == [1, 2, 4]
    assert [t for _, t in found.points] == pytest.approx([0.115, 0.115, 0.14])
    assert found.seconds(3) == pytest.approx(0.1275)
    assert found.extrapolated(8)
    assert not found.extrapolated(4)


def test_preferred_sizes_only_where_throughput_steps_up() -> None:
    smooth = BatchCurve(tuple((b, 0.114 + 0.006 * b) for b in range(1, 17)))
    assert steps_up(smooth, 16) == ()
    engine = BatchCurve(((1, 0.10), (4, 0.40), (8, 0.40)))  # an engine built for 8
    assert steps_up(engine, 8) == (8,)


@given(st.floats(0.0, 60.0))
def test_poisson_probabilities_add_up(rate: float) -> None:
    assert math.fsum(poisson(rate)) == pytest.approx(1.0, abs=1e-6)


@config(max_examples=40)
@given(
    rate=st.floats(0.5, 60.0), peak=st.floats(1.0, 3.0), servers=st.integers(1, 8), batch=st.sampled_from([None, 0.0, 0.005]),
)  # fmt: skip
def test_more_servers_never_make_a_prediction_worse(
    rate: float, peak: float, servers: int, batch: float | None
) -> None:
    load = Load(rate, rate * peak)
    stage = Stage(FORWARD, servers, 16, batch)
    few = predict((StageLoad(stage, load),), load, 0.99, 0.3)
    many = predict((StageLoad(replace(stage, servers=servers + 1), load),), load, 0.99, 0.3)
    assert many.quantile_s <= few.quantile_s + 2 * GRID_S
    assert 0.0 <= few.attainment <= 1.0
