"""A change through its phases, and everything that can come between: restarts, refusals, modes, budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo_tuner.codec import memory_from_json, memory_to_json
from slo_tuner.decision import Reason
from slo_tuner.memory import Phase, ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.signal import Unknown
from slo_tuner.snapshot import LatencyBlock, Refusal
from tests.unit.tuner.builders import SETTINGS, block, calm_rows, histogram, pod, server
from tests.unit.tuner.ticks import AUTO, FOUR, NOW, TUNED, begun, tick


def blocks(a: list[float], b: list[float], start: float = NOW - 50.0):  # type: ignore[no-untyped-def]
    return tuple(
        block(name, start + 10.0 * i, m, 0.0) for name, ms in (("a", a), ("b", b)) for i, m in enumerate(ms)
    )


def _first(found: tuple[LatencyBlock, ...], count: int) -> tuple[LatencyBlock, ...]:
    """The earliest ones, of both pods together."""
    return tuple(sorted(found, key=lambda b: b.start)[:count])


CLEARLY_FASTER = blocks([0.15, 0.20, 0.155, 0.19], [0.20, 0.30, 0.21, 0.29])
ON_A = (pod("a", settings=TUNED), pod("b"))
ON_BOTH = (pod("a", settings=TUNED), pod("b", settings=TUNED))


class TestBegin:
    def test_the_cheapest_lever_goes_to_one_pod_first(self) -> None:
        done = tick(server())
        assert done.reason is Reason.CANARY_STARTED
        assert done.acted
        assert done.lever == "preprocess_instances"
        assert done.settings["a"]["preprocessing"] == FOUR
        assert done.settings["b"]["preprocessing"] == SETTINGS["preprocessing"]
        assert done.stable["preprocessing"] == SETTINGS["preprocessing"], (
            "a pod that starts now is not a canary"
        )
        assert len(done.memory.reloads) == 1

    def test_deciding_twice_is_deciding_once(self) -> None:
        """After a crash between storing the memory and acting, the next tick states the same again."""
        first = tick(server())
        again = tick(server(), memory_from_json(memory_to_json(first.memory)), now=NOW + 15.0)
        assert again.reason is Reason.WAITING
        assert again.settings == first.settings
        assert not again.acted

    @pytest.mark.parametrize(
        "policy", [Policy(Mode.OBSERVE), Policy(Mode.RECOMMEND), Policy(Mode.AUTO, suspend=True)]
    )
    def test_without_leave_nothing_is_written_but_all_is_told(self, policy: Policy) -> None:
        done = tick(server(), policy=policy)
        assert done.settings == {}
        assert done.replicas is None
        assert not done.acted
        assert done.assessment.bottleneck is not None
        assert any(a.verdict.value == "Recommended" for a in done.assessment.levers)

    def test_a_server_that_is_someone_elses_is_only_observed(self) -> None:
        done = tick(server(managed=False))
        assert (done.reason, done.settings, done.replicas) == (Reason.OBSERVE_ONLY, {}, None)

    def test_the_hourly_budget_of_reloads_holds(self) -> None:
        spent = ServerMemory(stable=SETTINGS, reloads=tuple(NOW - 60.0 * i for i in range(1, 12)))
        assert tick(server(), spent).reason is Reason.BUDGET_SPENT
        old = replace(spent, reloads=tuple(t - 3600.0 for t in spent.reloads))
        assert tick(server(), old).reason is Reason.CANARY_STARTED

    def test_a_pod_that_drifted_is_brought_back_before_anything_is_tried(self) -> None:
        """G02: tuned to 16, one pod restarts with the file's 8."""
        drifted = (pod("a"), pod("b", settings=TUNED))
        done = tick(server(pods=drifted), ServerMemory(stable=SETTINGS))
        assert done.reason is Reason.WAITING
        assert done.settings["b"]["preprocessing"] == SETTINGS["preprocessing"]

    def test_fresh_memory_starts_from_what_pods_come_up_with(self) -> None:
        done = tick(server(pods=ON_A, tuned=TUNED))
        assert done.memory.stable["preprocessing"] == FOUR

    def test_memory_lost_after_tuning_takes_nothing_for_the_repositorys_own(self) -> None:
        """What is tuned stays what pods come up with: the actuator writes what differs from `original`."""
        memory = ServerMemory()
        for step in range(2):
            done = tick(server(pods=ON_BOTH, tuned={"preprocessing": FOUR}), memory, now=NOW + 15.0 * step)
            memory = done.memory
            assert done.stable["preprocessing"] == FOUR
            assert "preprocessing" not in memory.original
            assert memory.original["forward"] == SETTINGS["forward"]

    def test_memory_lost_in_mid_canary_takes_the_settings_of_the_others(self) -> None:
        """An unproven setting on one pod does not become the setting of record."""
        done = tick(server(pods=ON_A))
        assert done.memory.stable["preprocessing"] == SETTINGS["preprocessing"]
        assert done.settings["a"]["preprocessing"] == SETTINGS["preprocessing"]


class TestCompare:
    def test_better_spreads_and_becomes_what_pods_start_with(self) -> None:
        done = tick(server(pods=ON_A, blocks=CLEARLY_FASTER), begun())
        assert done.reason is Reason.PROMOTING
        assert done.stable["preprocessing"] == FOUR
        assert done.settings["b"]["preprocessing"] == FOUR
        assert done.memory.change is not None
        assert done.memory.change.pods == ("a", "b")

    def test_worse_restores_and_is_remembered(self) -> None:
        slower = blocks([0.20, 0.30, 0.21, 0.29], [0.15, 0.20, 0.155, 0.19])
        done = tick(server(pods=ON_A, blocks=slower), begun())
        assert done.reason is Reason.CANARY_RESTORED
        assert done.settings["a"]["preprocessing"] == SETTINGS["preprocessing"]
        assert done.memory.change is None
        assert done.memory.tried[-1].outcome == "worse"

    def test_inconclusive_extends_and_in_the_end_restores(self) -> None:
        equal = blocks([0.20, 0.30, 0.21, 0.29] * 4, [0.30, 0.20, 0.29, 0.21] * 4)
        memory = begun()
        for seen in (8, 16, 24):  # blocks of both pods: four more of each per look
            done = tick(server(pods=ON_A, blocks=_first(equal, seen)), memory)
            assert done.reason is Reason.CANARY_EXTENDED
            memory = done.memory
            again = tick(server(pods=ON_A, blocks=_first(equal, seen + 6)), memory)
            assert (again.reason, again.acted) == (Reason.WAITING, False), "one word per look"
        last = tick(server(pods=ON_A, blocks=equal), memory)
        assert last.reason is Reason.CANARY_RESTORED
        assert last.memory.tried[-1].outcome == "inconclusive"

    def test_looks_that_passed_unseen_are_not_made_up_for(self) -> None:
        """The operator was away for three looks, or requests were few: the next look comes after four more blocks."""
        equal = blocks([0.20, 0.30, 0.21, 0.29] * 4, [0.30, 0.20, 0.29, 0.21] * 4)
        first = tick(server(pods=ON_A, blocks=_first(equal, 24)), begun())
        assert first.memory.change is not None
        assert first.memory.change.looks == 3
        assert tick(server(pods=ON_A, blocks=_first(equal, 24)), first.memory).reason is Reason.WAITING

    def test_a_canary_that_is_unready_for_a_moment_after_its_load_is_waited_for(self) -> None:
        """Loading takes the processor that the readiness probe needs."""
        unready = (pod("a", settings=TUNED, ready=False), pod("b"))
        assert (
            tick(server(pods=unready, blocks=CLEARLY_FASTER), begun(since=NOW - 20.0)).reason
            is Reason.WAITING
        )
        silent = (pod("a", settings={}), pod("b"))
        assert tick(server(pods=silent, blocks=CLEARLY_FASTER), begun()).reason is Reason.WAITING
        loading = (pod("a", ready=False), pod("b"))
        assert tick(server(pods=loading), begun(live=False)).reason is Reason.WAITING
        back = tick(server(pods=ON_A, blocks=CLEARLY_FASTER), begun())
        assert back.reason is Reason.PROMOTING

    def test_without_metrics_it_waits_and_then_restores(self) -> None:
        dark = server(pods=ON_A, rows=(), gateway=(), arrivals_rps={})
        assert tick(dark, begun()).reason is Reason.WAITING
        assert tick(dark, begun(since=NOW - 300.0)).reason is Reason.CANARY_RESTORED

    @pytest.mark.parametrize(
        "pods",
        [
            (pod("a", started=NOW - 20.0), pod("b")),  # the canary restarted, with stable settings
            (pod("b"), pod("c", started=NOW - 20.0)),  # the canary is gone
            (pod("a", settings=TUNED), pod("b", started=NOW - 20.0)),  # a peer restarted
            (pod("a", settings=TUNED, ready=False), pod("b")),  # not ready for more than a minute
        ],
    )
    def test_a_restart_makes_the_comparison_worthless(self, pods: tuple) -> None:  # type: ignore[type-arg]
        done = tick(server(pods=pods, blocks=CLEARLY_FASTER), begun(since=NOW - 61.0))
        assert done.reason is Reason.CANARY_ABANDONED
        assert done.memory.change is None
        assert done.memory.tried == (), "nothing was learnt"
        assert all(s["preprocessing"] == SETTINGS["preprocessing"] for s in done.settings.values())

    def test_the_clock_starts_when_the_settings_are_live(self) -> None:
        waiting = begun(live=False)
        assert tick(server(blocks=CLEARLY_FASTER), waiting).memory.change == waiting.change
        live = tick(server(pods=ON_A, blocks=CLEARLY_FASTER), waiting)
        assert live.memory.change is not None
        assert (live.memory.change.live, live.memory.change.since) == (True, NOW)

    def test_a_refused_load_is_undone_at_once(self) -> None:
        refusal = Refusal("a", "preprocessing", FOUR, "no such backend")
        done = tick(server(refusals=(refusal,)), begun(live=False))
        assert done.reason is Reason.LOAD_REFUSED
        assert done.memory.tried[-1].outcome == "refused"
        assert done.memory.change is None

    def test_a_refusal_of_something_else_does_not_count(self) -> None:
        refusal = Refusal("a", "preprocessing", ModelSettings(9, 16), "old news")
        assert tick(server(pods=ON_A, refusals=(refusal,)), begun()).reason is not Reason.LOAD_REFUSED


class TestSpread:
    def test_the_next_pod_waits_for_the_previous_one(self) -> None:
        third = (pod("a", settings=TUNED), pod("b"), pod("c"))
        memory = begun(phase=Phase.PROMOTE, pods=("a", "b"))
        done = tick(server(pods=third, desired_replicas=3), memory)
        assert done.settings["c"]["preprocessing"] == SETTINGS["preprocessing"]
        assert done.memory.change is not None
        assert done.memory.change.pods == ("a", "b")

    def test_a_pod_that_is_not_ready_yet_after_its_load_holds_the_next_one_back(self) -> None:
        third = (pod("a", settings=TUNED), pod("b", settings=TUNED, ready=False), pod("c"))
        done = tick(server(pods=third, desired_replicas=3), begun(phase=Phase.PROMOTE, pods=("a", "b")))
        assert done.settings["c"]["preprocessing"] == SETTINGS["preprocessing"]

    def test_when_all_pods_have_it_the_whole_is_confirmed(self) -> None:
        done = tick(server(pods=ON_BOTH), begun(phase=Phase.PROMOTE, pods=("a", "b")))
        assert done.reason is Reason.PROMOTED
        assert done.memory.change is not None
        assert done.memory.change.phase is Phase.CONFIRM

    def test_a_pod_that_starts_meanwhile_keeps_the_new_settings(self) -> None:
        pods = (pod("a", settings=TUNED), pod("b"), pod("d", settings=TUNED, started=NOW - 5.0))
        done = tick(server(pods=pods, desired_replicas=3), begun(phase=Phase.PROMOTE, pods=("a", "b")))
        assert done.settings["d"]["preprocessing"] == FOUR

    def test_a_pod_that_restarts_while_it_spreads_is_brought_to_the_new_settings(self) -> None:
        pods = (pod("a", started=NOW - 5.0), pod("b", settings=TUNED))
        done = tick(server(pods=pods), begun(phase=Phase.CONFIRM, pods=("a", "b")))
        assert done.settings["a"]["preprocessing"] == FOUR

    def test_worse_on_the_whole_rolls_all_back(self) -> None:
        before = blocks([0.20, 0.21] * 3, [0.20, 0.21] * 3, start=NOW - 200.0)
        after = blocks([0.30, 0.31, 0.30, 0.32], [0.30, 0.31, 0.30, 0.32], start=NOW - 50.0)
        memory = begun(phase=Phase.CONFIRM, pods=("a", "b"), started=NOW - 130.0)
        done = tick(server(pods=ON_BOTH, blocks=(*before, *after)), memory)
        assert done.reason is Reason.ROLLED_BACK
        assert done.stable["preprocessing"] == SETTINGS["preprocessing"]
        assert all(s["preprocessing"] == SETTINGS["preprocessing"] for s in done.settings.values())

    def test_confirmed_is_done_and_remembered_with_before_and_after(self) -> None:
        before = blocks([0.30, 0.31] * 3, [0.30, 0.31] * 3, start=NOW - 200.0)
        after = blocks([0.20, 0.21, 0.20, 0.22], [0.20, 0.21, 0.20, 0.22], start=NOW - 50.0)
        memory = begun(
            phase=Phase.CONFIRM,
            pods=("a", "b"),
            started=NOW - 130.0,
            baseline={"pods": 2.0, "mean_ms": 305.0},
        )
        done = tick(server(pods=ON_BOTH, blocks=(*before, *after)), memory)
        assert done.reason is Reason.PROMOTED
        assert done.memory.change is None
        assert done.memory.stable["preprocessing"] == FOUR
        assert done.memory.tried[-1].before["mean_ms"] == 305.0
        assert done.memory.tried[-1].after["latency_change_percent"] < -25


class TestModes:
    def test_observe_in_mid_canary_takes_it_back_and_then_writes_nothing(self) -> None:
        observe = Policy(Mode.OBSERVE)
        first = tick(server(pods=ON_A), begun(), observe)
        assert first.reason is Reason.CANARY_RESTORED
        assert first.settings["a"]["preprocessing"] == SETTINGS["preprocessing"]
        again = tick(server(pods=ON_A), first.memory, observe, NOW + 15.0)
        assert again.settings["a"]["preprocessing"] == SETTINGS["preprocessing"], "until it is done"
        done = tick(server(), again.memory, observe, NOW + 30.0)
        assert (done.settings, done.memory.change) == ({}, None)
        assert tick(server(), done.memory, observe, NOW + 45.0).settings == {}

    def test_suspend_in_mid_canary_stops_every_write(self) -> None:
        done = tick(server(pods=ON_A), begun(), replace(AUTO, suspend=True))
        assert (done.settings, done.replicas) == ({}, None)
        assert done.memory.change is not None

    def test_observe_after_the_spread_leaves_it(self) -> None:
        done = tick(server(pods=ON_BOTH), begun(phase=Phase.CONFIRM, pods=("a", "b")), Policy(Mode.OBSERVE))
        assert (done.settings, done.memory.change) == ({}, None)
        assert done.stable["preprocessing"] == FOUR


class TestHold:
    def test_prometheus_gone_holds_and_says_so(self) -> None:
        done = tick(server(rows=(), gateway=(), arrivals_rps={}), ServerMemory(stable=SETTINGS))
        assert done.reason is Reason.NO_DATA
        assert not done.assessment.metrics_available
        assert done.settings["a"]["preprocessing"] == SETTINGS["preprocessing"]

    def test_a_night_of_small_ratios_is_left_alone_and_a_slow_day_is_not(self) -> None:
        """D10: the SLO decides, not queue ÷ compute."""
        night = server(
            rows=tuple(r for p in ("a", "b") for r in calm_rows(p)), gateway=(histogram(5000, 5000),)
        )
        quiet = tick(night)
        assert quiet.reason is Reason.SLO_MET
        assert not quiet.acted
        assert tick(server()).acted

    def test_evidence_from_before_an_action_does_not_trigger_a_second_one(self) -> None:
        memory = ServerMemory(stable=SETTINGS, last_action=NOW - 20.0)
        assert tick(server(), memory).reason is Reason.WAITING

    def test_steady_state_tells_the_same_in_the_same_words(self) -> None:
        view = server(
            rows=tuple(r for p in ("a", "b") for r in calm_rows(p)),
            gateway=(histogram(5000, 5000),),
            min_replicas=2,
        )
        first = tick(view)
        second = tick(view, first.memory, now=NOW + 15.0)
        assert (first.message, first.memory) == (second.message, second.memory)

    def test_unknown_counters_are_not_a_miss(self) -> None:
        rows = tuple(replace(r, requests=Unknown("scrape failed")) for r in server().rows)
        done = tick(server(rows=rows), ServerMemory(stable=SETTINGS))
        assert done.reason is Reason.NO_DATA
