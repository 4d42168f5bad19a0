"""Each lever: when it may not be turned, and what it would set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo_tuner.assess import Picture, assess
from slo_tuner.decision import Verdict
from slo_tuner.ladder import digest, fingerprint
from slo_tuner.levers.base import Proposal
from slo_tuner.memory import ServerMemory, Tried
from slo_tuner.policy import Policy
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.signal import Unknown, Value
from slo_tuner.simulator.pipeline import Simulation
from slo_tuner.simulator.view import observe
from slo_tuner.snapshot import BatchTime, PoolView, ServerView
from tests.unit.tuner.builders import (
    PIPELINE,
    POOL,
    SETTINGS,
    calm_rows,
    configs,
    histogram,
    pod,
    row,
    server,
)
from tests.unit.tuner.loop_harness import as_found, pipelines


def picture(
    view: ServerView, pool: PoolView = POOL, memory: ServerMemory | None = None, now: float = 1000.0
) -> Picture:
    stable = next((p.settings for p in view.ready_pods), SETTINGS)
    return assess(view, pool, memory or ServerMemory(), Policy(), stable, now)


def advice(view: ServerView, lever: str, pool: PoolView = POOL, memory: ServerMemory | None = None):  # type: ignore[no-untyped-def]
    return next(a for a in picture(view, pool, memory).assessment.levers if a.lever == lever)


def with_settings(settings: dict[str, ModelSettings], **changes: object) -> ServerView:
    pods = (pod("a", settings=settings), pod("b", settings=settings))
    return server(pods=pods, models=configs(settings), **changes)


def busy_forward(rps_per_pod: float, batches: tuple[BatchTime, ...] = ()) -> tuple:  # type: ignore[type-arg]
    n = rps_per_pod * 60
    return tuple(
        r
        for p in ("a", "b")
        for r in (
            row(p, "preprocessing", n, 0.001, 0.010),
            row(p, "forward", n, 0.150, 0.120, batches=batches),
            row(p, "postprocessing", n, 0.0, 0.002),
            row(p, "chat", n, 0.0, 0.0, latency_s=0.285),
        )
    )


class TestPreprocessInstances:
    def test_it_is_the_first_choice_for_a_starved_stage_and_sized_for_the_burst_with_a_pod_lost(self) -> None:
        found = advice(server(), "preprocess_instances")
        assert found.verdict is Verdict.RECOMMENDED
        # 20 rps × 1.5 in bursts × 2 (one of two pods lost) × 28 ms = 1.7 busy: at most 60 % busy and little wait → 4
        assert found.settings["preprocessing"].instances == 4

    def test_a_host_without_cpu_rules_it_out_with_the_numbers(self) -> None:
        full = (pod("a", cpu_used_cores=Value(15.5)), pod("b"))
        found = advice(server(pods=full), "preprocess_instances")
        assert found.verdict is Verdict.INELIGIBLE
        assert "a uses 15.5 of 16.0 cores" in found.why

    def test_it_takes_no_more_than_the_cores_to_spare(self) -> None:
        tight = (pod("a", cpu_used_cores=Value(14.5)), pod("b"))
        assert advice(server(pods=tight), "preprocess_instances").settings["preprocessing"].instances == 2

    def test_it_stays_within_the_limit(self) -> None:
        limited = replace(PIPELINE, max_preprocess_instances=3)
        assert (
            advice(server(pipelines=(limited,)), "preprocess_instances").settings["preprocessing"].instances
            == 3
        )
        reached = with_settings({**SETTINGS, "preprocessing": ModelSettings(8, 16)})
        assert "limit of 8" in advice(reached, "preprocess_instances").why

    def test_an_unknown_host_is_approached_carefully(self) -> None:
        blind = tuple(pod(p, cpu_used_cores=Unknown("no cAdvisor")) for p in ("a", "b"))
        slow = tuple(
            replace(r, compute_infer_s=Value(0.25 * 1200)) if r.model == "preprocessing" else r
            for r in server().rows
        )
        found = advice(server(pods=blind, rows=slow), "preprocess_instances")
        assert found.settings["preprocessing"].instances == 4, "twice the present and two"


class TestBatching:
    def test_a_model_that_cannot_batch_is_left_alone(self) -> None:
        """B02: max_batch_size 0."""
        found = advice(with_settings({**SETTINGS, "forward": ModelSettings(4, 0)}), "batching")
        assert found.verdict is Verdict.INELIGIBLE
        assert "batching not supported by this model" in found.why

    @pytest.mark.parametrize("kind", ["decoupled", "sequence_batching"])
    def test_streaming_and_sequence_models_are_left_alone(self, kind: str) -> None:
        streaming = replace(configs()["forward"], **{kind: True})  # type: ignore[arg-type]
        models = {**configs(), "forward": streaming}
        assert advice(server(models=models), "batching").verdict is Verdict.INELIGIBLE

    def test_it_is_recommended_for_busy_instances_with_a_delay_within_the_limits(self) -> None:
        view = server(rows=busy_forward(20.0), gateway=(histogram(2000, 2400),))
        found = advice(view, "batching")
        assert found.verdict is Verdict.RECOMMENDED
        batching = found.settings["forward"].batching
        assert batching is not None
        assert 0 < batching.delay_us <= 10_000
        assert batching.preferred_sizes == ()
        assert "extrapolated" in found.why

    def test_the_delay_respects_the_pipelines_limit_and_the_slack(self) -> None:
        short = replace(PIPELINE, max_queue_delay_us=500)
        view = server(rows=busy_forward(20.0), pipelines=(short,))
        assert "no slack" in advice(view, "batching").why

    def test_the_cap_keeps_a_full_batch_within_the_target(self) -> None:
        # 100 ms at 1, 100 more per item: with 12 ms elsewhere and 270 ms allowed, 1.125 × s(2) = 225 fits, 1.125 × s(3) does not
        steep = (BatchTime(1, 500, 0.1), BatchTime(4, 10, 0.4))
        view = server(rows=busy_forward(20.0, steep), gateway=(histogram(2000, 2400),))
        assert advice(view, "batching").settings["forward"].max_batch_size == 2

    def test_lowering_a_member_lowers_its_ensemble_too(self) -> None:
        steep = (BatchTime(1, 500, 0.1), BatchTime(4, 10, 0.4))
        view = server(rows=busy_forward(20.0, steep), gateway=(histogram(2000, 2400),))
        assert advice(view, "batching").settings["chat"].max_batch_size == 2

    def test_without_slack_there_is_no_delay(self) -> None:
        tight = replace(PIPELINE, objectives=(replace(PIPELINE.objectives[0], target_s=0.135),))
        assert "no slack" in advice(server(pipelines=(tight,), rows=busy_forward(20.0)), "batching").why


def batching_at_80_rps(memory_used_mib: float) -> ServerView:
    """The three assistants after preprocessing and batching, at twice their traffic."""
    batching = Batching(1_000, (2, 4, 8))
    start = {f"forward-{v}": ModelSettings(2, 16, batching) for v in ("small", "base", "large")}
    start = {**as_found().start, "preprocessing": ModelSettings(6, 16), **start}
    simulation = Simulation(replace(as_found(), start=start), 80.0, seed=1)
    simulation.run_until(120.0)
    return observe(simulation, pipelines(), memory_used_mib=memory_used_mib)


class TestInstances:
    def test_busy_gpus_rule_it_out(self) -> None:
        hot = tuple(pod(p, gpu_busy={f"{p}-0": Value(0.9)}) for p in ("a", "b"))
        assert "90% busy" in advice(server(pods=hot), "instances").why

    def test_unknown_gpu_activity_is_not_idleness(self) -> None:
        blind = (pod("a", gpu_busy={"a-0": Unknown("no DCGM")}), pod("b"))
        assert advice(server(pods=blind), "instances").verdict is Verdict.INELIGIBLE

    def test_memory_that_does_not_fit_rules_it_out(self) -> None:
        # 60,000 MiB for two instances per GPU: 30,000 more do not fit into 90 % of 81,920
        full = tuple(
            pod(p, gpu_memory_used_mib={f"{p}-0": Value(60_000.0), f"{p}-1": Value(60_000.0)})
            for p in ("a", "b")
        )
        assert "no GPU memory" in advice(server(pods=full), "instances").why

    def test_one_more_per_gpu(self) -> None:
        assert advice(server(rows=busy_forward(20.0)), "instances").settings["forward"].instances == 6

    def test_pipelines_as_slow_as_the_worst_are_raised_together(self) -> None:
        """Batches of every variant take about the same time: the others' p99 is within 10 % of the busiest one's."""
        found = advice(batching_at_80_rps(memory_used_mib=36_000.0), "instances")
        assert {n: s.instances for n, s in found.settings.items()} == {
            "forward-small": 4, "forward-base": 4, "forward-large": 4,
        }  # fmt: skip
        assert found.why == "forward-small 2 → 4, forward-base 2 → 4, forward-large 2 → 4 instances per pod"

    def test_where_memory_is_short_the_worst_pipeline_is_raised_alone(self) -> None:
        # 3 instances per GPU in 48,000 MiB: 16,000 each, and 25,728 are left below 90 % of 81,920
        found = advice(batching_at_80_rps(memory_used_mib=48_000.0), "instances")
        assert {n: s.instances for n, s in found.settings.items()} == {"forward-small": 4}

    def test_instances_that_nobody_waits_for_are_not_raised(self) -> None:
        calm = tuple(r for p in ("a", "b") for r in calm_rows(p, n=60.0))
        found = advice(server(rows=calm, arrivals_rps={"chat": Value(2.0)}), "instances")
        assert found.verdict is Verdict.INELIGIBLE
        assert "nothing to gain" in found.why


class TestReplicas:
    def test_a_full_pool_is_no_capacity(self) -> None:
        found = advice(server(), "replicas")
        assert found.verdict is Verdict.INELIGIBLE
        assert "has 0 of 4 free" in found.why

    def test_the_shortfall_is_told_when_nothing_else_is_left(self) -> None:
        settings = {**SETTINGS, "preprocessing": ModelSettings(8, 16), "forward": ModelSettings(4, 0)}
        hot = tuple(pod(p, settings=settings, gpu_busy={f"{p}-0": Value(0.95)}) for p in ("a", "b"))
        view = server(
            pods=hot, models=configs(settings), rows=busy_forward(30.0), arrivals_rps={"chat": Value(60.0)}
        )
        assert picture(view).assessment.shortfall_gpus >= 2

    def test_free_gpus_are_used_but_never_more_than_there_are(self) -> None:
        settings = {**SETTINGS, "preprocessing": ModelSettings(8, 16), "forward": ModelSettings(4, 0)}
        hot = tuple(pod(p, settings=settings, gpu_busy={f"{p}-0": Value(0.95)}) for p in ("a", "b"))
        view = server(
            pods=hot, models=configs(settings), rows=busy_forward(30.0), arrivals_rps={"chat": Value(60.0)}
        )
        found = advice(view, "replicas", PoolView("a100", limit_gpus=7, used_gpus=4))
        assert found.verdict is Verdict.RECOMMENDED
        assert found.replicas == 3


def test_mig_is_not_indicated_and_says_why() -> None:
    assert "no interference" in advice(server(mig_allowed=True), "mig").why
    assert "does not allow" in advice(server(), "mig").why


def test_what_gave_nothing_is_exhausted_for_that_load_only() -> None:
    """C03: more processes made it worse; never again on the same evidence, but again at another load."""
    seen = picture(server())
    first = next(r for r in seen.rungs if r.advice.lever == "preprocess_instances")
    memory = ServerMemory(tried=(Tried("preprocess_instances", first.fingerprint, "worse", 900.0),))
    assert advice(server(), "preprocess_instances", memory=memory).verdict is Verdict.EXHAUSTED
    lever, band, *rest = first.fingerprint.split("|")
    other = Tried("preprocess_instances", "|".join([lever, str(int(band) + 3), *rest]), "worse", 900.0)
    assert (
        advice(server(), "preprocess_instances", memory=ServerMemory(tried=(other,))).verdict
        is Verdict.RECOMMENDED
    )


def test_a_setting_is_offered_twice_at_most_to_a_server_that_refuses_it() -> None:
    rung = next(r for r in picture(server()).rungs if r.advice.lever == "preprocess_instances")
    once = Tried("preprocess_instances", rung.fingerprint, "refused", 900.0)
    assert (
        advice(server(), "preprocess_instances", memory=ServerMemory(tried=(once,))).verdict
        is Verdict.RECOMMENDED
    )
    assert (
        advice(server(), "preprocess_instances", memory=ServerMemory(tried=(once, once))).verdict
        is Verdict.EXHAUSTED
    )


def test_refusals_count_at_any_load_and_for_any_number_but_not_under_other_settings() -> None:
    """While traffic begins its rate is known too low: refused for 3 and for 5 then, it must not be offered as 4."""
    rung = next(r for r in picture(server()).rungs if r.advice.lever == "preprocess_instances")
    lever, band, _, replicas, stable = rung.fingerprint.split("|")

    def after_two_refusals(settings: str) -> object:
        tried = tuple(
            Tried(
                lever, "|".join((lever, str(int(band) - less), wanted, replicas, settings)), "refused", 900.0
            )
            for less, wanted in ((4, "three"), (0, "five"))
        )
        return advice(server(), lever, memory=ServerMemory(tried=tried)).verdict

    assert after_two_refusals(stable) is Verdict.EXHAUSTED
    assert after_two_refusals("others") is Verdict.RECOMMENDED


def test_fingerprints_tell_loads_and_settings_apart() -> None:
    ctx = picture(server()).context
    four, five = (Proposal("", {"preprocessing": ModelSettings(n, 16)}) for n in (4, 5))
    assert fingerprint(ctx, "x", four) != fingerprint(ctx, "x", five)
    assert digest({"a": ModelSettings(1, 2)}) == digest({"a": ModelSettings(1, 2)})


def test_with_two_stages_overloaded_the_cheaper_lever_goes_first() -> None:
    """Preprocessing 1.1 and forward 0.9 busy on average, more in bursts: neither lever alone shortens the whole."""
    rows = tuple(
        r
        for p in ("a", "b")
        for r in (
            row(p, "preprocessing", 1800, 2.0, 0.030),
            row(p, "forward", 1800, 1.0, 0.120),
            row(p, "postprocessing", 1800, 0.0, 0.002),
            row(p, "chat", 1800, 0.0, 0.0, latency_s=3.15),
        )
    )
    view = server(rows=rows, arrivals_rps={"chat": Value(74.0)}, gateway=(histogram(100, 3600),))
    assert advice(view, "preprocess_instances").verdict is Verdict.RECOMMENDED
