"""Replicas: up when nothing cheaper is left, down when the survivors suffice, and never on what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo_tuner.decision import Reason
from slo_tuner.memory import ServerMemory
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Value
from slo_tuner.snapshot import PoolView, ServerView
from tests.unit.tuner.builders import SETTINGS, calm_rows, configs, histogram, pod, row, server
from tests.unit.tuner.ticks import NOW, begun, tick

SATURATED = {**SETTINGS, "preprocessing": ModelSettings(8, 16), "forward": ModelSettings(4, 0)}


def overloaded(**changes: object) -> ServerView:
    """Nothing left but replicas: processes at their limit, a model that cannot batch, GPUs busy."""
    hot = tuple(pod(p, settings=SATURATED, gpu_busy={f"{p}-0": Value(0.95)}) for p in ("a", "b"))
    rows = tuple(
        r
        for p in ("a", "b")
        for r in (
            row(p, "preprocessing", 1800, 0.001, 0.010),
            row(p, "forward", 1800, 0.5, 0.120),
            row(p, "postprocessing", 1800, 0.0, 0.002),
            row(p, "chat", 1800, 0.0, 0.0, latency_s=0.64),
        )
    )
    base = server(
        pods=hot,
        models=configs(SATURATED),
        rows=rows,
        arrivals_rps={"chat": Value(60.0)},
        gateway=(histogram(1000, 3600),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


class TestReplicas:
    def test_scale_up_is_the_last_resort_and_stays_within_the_pool(self) -> None:
        done = tick(overloaded(), pool=PoolView("a100", 6, 4))
        assert done.reason is Reason.SCALED_UP
        assert done.replicas == 3

    def test_without_free_gpus_it_says_how_many_are_missing(self) -> None:
        done = tick(overloaded())
        assert done.reason is Reason.NO_CAPACITY
        assert done.replicas is None
        assert done.assessment.shortfall_gpus >= 2

    def test_scale_up_preempts_a_canary_and_discards_its_result(self) -> None:
        canary = begun(
            lever="instances",
            settings={"forward": ModelSettings(6, 0)},
            before={"forward": ModelSettings(4, 0)},
        )
        memory = replace(canary, stable=SATURATED, original=SATURATED)
        done = tick(overloaded(), memory, pool=PoolView("a100", 6, 4))
        assert done.reason is Reason.SCALED_UP
        assert done.memory.change is None
        assert done.memory.tried == ()
        assert done.settings["a"]["forward"] == ModelSettings(4, 0)

    def test_requests_that_wait_while_none_finishes_scale_up(self) -> None:
        """A08 with the gauge: 38 pending, no completion in the window."""
        rows = tuple(row(p, m, 0.0, window_s=80.0, pending=Value(19.0)) for p in ("a", "b") for m in SETTINGS)
        done = tick(server(rows=rows, gateway=(), arrivals_rps={}), pool=PoolView("a100", 8, 4))
        assert done.reason is Reason.SCALED_UP
        assert done.replicas == 3

    def test_arrivals_count_not_completions(self) -> None:
        """D03 A: clients wait, so that completions look as if the present were enough."""
        held_back = overloaded(arrivals_rps={"chat": Value(120.0)})
        done = tick(held_back, pool=PoolView("a100", 8, 4))
        assert done.replicas == 4

    def calm(self, **changes: object) -> ServerView:
        settings = {**SETTINGS, "forward": ModelSettings(8, 16)}
        pods = (pod("a", settings=settings), pod("b", settings=settings))
        rows = tuple(replace(r, window_s=60.0) for p in ("a", "b") for r in calm_rows(p, 60.0))
        base = server(
            pods=pods,
            models=configs(settings),
            rows=rows,
            arrivals_rps={"chat": Value(2.0)},
            gateway=(histogram(5000, 5000),),
        )
        return replace(base, **changes)  # type: ignore[arg-type]

    def test_scale_down_waits_for_a_whole_look_back(self) -> None:
        first = tick(self.calm())
        assert first.replicas is None
        assert first.memory.calm_since == NOW
        assert tick(self.calm(), first.memory, now=NOW + 290.0).replicas is None
        done = tick(self.calm(), first.memory, now=NOW + 310.0)
        assert done.reason is Reason.SCALED_DOWN
        assert done.replicas == 1

    def test_a_blink_of_the_metrics_starts_the_look_back_again(self) -> None:
        first = tick(self.calm())
        dark = tick(self.calm(rows=(), gateway=(), arrivals_rps={}), first.memory, now=NOW + 200.0)
        assert dark.memory.calm_since is None
        assert tick(self.calm(), dark.memory, now=NOW + 310.0).replicas is None

    @pytest.mark.parametrize(
        "changes",
        [
            {"rows": (), "gateway": (), "arrivals_rps": {}},  # D01 (2), (3): empty, target down
            {"rows": calm_rows("a", 60.0)},  # D05: pod b has no series
            {"min_replicas": 2},
            {"pods": (pod("a"), pod("b"), pod("c", terminating=True))},  # the last step down is under way
            {"arrivals_rps": {"chat": Value(200.0)}},  # the survivors would not do
        ],
    )
    def test_anything_unknown_or_short_holds(self, changes: dict[str, object]) -> None:
        memory = ServerMemory(stable={**SETTINGS, "forward": ModelSettings(8, 16)}, calm_since=NOW - 10_000.0)
        done = tick(self.calm(**changes), memory)
        assert done.reason is not Reason.SCALED_DOWN
        assert done.replicas is None

    def test_a_replica_that_never_starts_is_given_up_once_the_others_have_sufficed_for_long(self) -> None:
        """Three wanted, two ready, which are plenty: the traffic that asked for the third is gone."""
        starting = self.calm(desired_replicas=3)
        asked = ServerMemory(
            stable=starting.pods[0].settings, calm_since=NOW - 10_000.0, last_scale=NOW - 290.0
        )
        assert tick(starting, asked).replicas is None, "it gets the time of a look-back to start"
        assert tick(starting, replace(asked, last_scale=NOW - 310.0)).replicas == 2

    def test_proven_idleness_steps_down_to_the_minimum(self) -> None:
        """D01 (1): targets up, counters flat, nothing pending."""
        rows = tuple(row(p, m, 0.0) for p in ("a", "b") for m in SETTINGS)
        idle = server(rows=rows, gateway=(), arrivals_rps={})
        first = tick(idle)
        assert first.reason is Reason.IDLE
        assert tick(idle, first.memory, now=NOW + 400.0).replicas == 1

    def test_promised_throughput_is_kept_whatever_the_traffic(self) -> None:
        promised = replace(server().pipelines[0], throughput_rps=80.0)
        memory = ServerMemory(stable={**SETTINGS, "forward": ModelSettings(8, 16)}, calm_since=NOW - 10_000.0)
        assert tick(self.calm(pipelines=(promised,)), memory).replicas is None
