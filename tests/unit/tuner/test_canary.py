"""Verdicts: an unchanged setting is inconclusive, a clear effect is seen within a few looks, doubt is not a verdict."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import pytest

from slo_tuner.canary import MAX_LOOKS, SETTLE_S, Comparison, Finding, compare, confirm
from slo_tuner.memory import Change, Phase
from slo_tuner.policy import Policy
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.signal import Value
from slo_tuner.simulator.pipeline import Simulation
from slo_tuner.simulator.view import observe
from slo_tuner.snapshot import LatencyBlock, RequestTrace, ServerView
from tests.unit.tuner.builders import block, pod, server
from tests.unit.tuner.loop_harness import as_found, pipelines

POLICY = Policy(analysis_s=40.0, min_samples=100)
BEGUN = 1000.0


def change(pods: tuple[str, ...] = ("a",), **changes: object) -> Change:
    base = Change("id", "lever", {}, {}, pods, Phase.ANALYSE, BEGUN, BEGUN, live=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def blocks_of(
    name: str,
    means: list[float],
    misses: list[float | None] | None = None,
    start: float = BEGUN + SETTLE_S,
    n: float = 200.0,
) -> list[LatencyBlock]:
    counts = misses or [0.0] * len(means)
    return [
        block(name, start + 10.0 * i, m, x, n) for i, (m, x) in enumerate(zip(means, counts, strict=True))
    ]


def look(
    *blocks: list[LatencyBlock], looks: int = 0, policy: Policy = POLICY, view: ServerView | None = None
) -> Finding:
    seen = replace(view or server(), blocks=tuple(b for bs in blocks for b in bs))
    return compare(seen, change(looks=looks), policy, BEGUN + 300.0)


NOISY = [0.20, 0.30, 0.21, 0.29]
FASTER = [0.15, 0.20, 0.155, 0.19]


class TestOneLook:
    def test_a_clearly_faster_pod_is_better_at_the_first_look(self) -> None:
        found = look(blocks_of("a", FASTER), blocks_of("b", NOISY))
        assert found.comparison is Comparison.BETTER
        assert found.evidence["latency_change_percent"] < -25

    def test_a_clearly_slower_pod_is_worse(self) -> None:
        assert look(blocks_of("a", NOISY), blocks_of("b", FASTER)).comparison is Comparison.WORSE

    def test_equal_pods_are_inconclusive(self) -> None:
        assert look(blocks_of("a", NOISY), blocks_of("b", NOISY[::-1])).comparison is Comparison.INCONCLUSIVE

    def test_blocks_before_it_settled_do_not_count(self) -> None:
        early = blocks_of("a", FASTER, start=BEGUN), blocks_of("b", NOISY, start=BEGUN)
        assert look(*early).comparison is Comparison.EARLY

    def test_a_faster_pod_with_more_misses_is_not_better(self) -> None:
        found = look(
            blocks_of("a", FASTER, [8.0, 9.0, 8.0, 10.0]), blocks_of("b", NOISY, [0.0, 0.0, 1.0, 0.0])
        )
        assert found.comparison is Comparison.WORSE

    def test_less_traffic_makes_a_better_pod_inconclusive(self) -> None:
        found = look(blocks_of("a", FASTER, n=120.0), blocks_of("b", NOISY, n=200.0))
        assert found.comparison is Comparison.INCONCLUSIVE
        assert "60%" in found.why

    def test_more_traffic_makes_a_better_pod_better_still(self) -> None:
        """A least-outstanding gateway sends more to a faster pod."""
        found = look(blocks_of("a", FASTER, n=260.0), blocks_of("b", NOISY, n=200.0))
        assert found.comparison is Comparison.BETTER

    def test_a_worse_pod_with_more_traffic_is_inconclusive(self) -> None:
        found = look(blocks_of("a", NOISY, n=260.0), blocks_of("b", FASTER, n=200.0))
        assert found.comparison is Comparison.INCONCLUSIVE

    def test_failures_are_worse_at_once(self) -> None:
        """B09: requests fail after our change: no waiting for a look."""
        failing = [block("a", BEGUN, 0.1, 0.0, 100.0, failures=20.0)]
        found = look(failing, [block("b", BEGUN, 0.1, 0.0, 100.0)])
        assert found.comparison is Comparison.WORSE
        assert found.evidence["failures"] == 20

    def test_failures_on_every_pod_are_not_the_canarys_fault(self) -> None:
        both = [[block(p, BEGUN, 0.1, 0.0, 100.0, failures=20.0)] for p in ("a", "b")]
        assert look(*both).comparison is Comparison.EARLY

    def test_too_few_requests_are_no_look(self) -> None:
        found = look(blocks_of("a", FASTER, n=20.0), blocks_of("b", NOISY, n=20.0))
        assert found.comparison is Comparison.EARLY

    def test_a_load_that_moved_is_inconclusive_for_good(self) -> None:
        before = [blocks_of(p, [0.2] * 6, start=BEGUN - 100.0, n=100.0) for p in ("a", "b")]
        found = look(blocks_of("a", FASTER), blocks_of("b", NOISY), *before)
        assert found.comparison is Comparison.INCONCLUSIVE
        assert found.final

    def test_a_load_that_had_moved_before_the_change_does_not_disturb_it(self) -> None:
        """Traffic doubled 40 s before the canary began; from then on the load stayed as it was."""
        quiet = [blocks_of(p, [0.2] * 4, start=BEGUN - 100.0, n=50.0) for p in ("a", "b")]
        busy = [blocks_of(p, NOISY[:4], start=BEGUN - 50.0, n=100.0) for p in ("a", "b")]
        found = look(blocks_of("a", FASTER, n=100.0), blocks_of("b", NOISY, n=100.0), *quiet, *busy)
        assert found.comparison is Comparison.BETTER
        assert found.evidence["load_ratio"] == 1.0

    def test_a_slower_node_is_not_the_settings_fault(self) -> None:
        """Pod a was 20 % slower before the change and still is: nothing changed."""
        before = [0.20, 0.30, 0.21, 0.29, 0.20, 0.30]
        found = look(
            blocks_of("a", [1.2 * m for m in NOISY]),
            blocks_of("b", NOISY),
            blocks_of("a", [1.2 * m for m in before], start=BEGUN - 100.0),
            blocks_of("b", before, start=BEGUN - 100.0),
        )
        assert found.comparison is Comparison.INCONCLUSIVE

    def test_means_alone_decide_where_misses_are_not_known(self) -> None:
        unknown: list[float | None] = [None] * 4
        assert (
            look(blocks_of("a", FASTER, unknown), blocks_of("b", NOISY, unknown)).comparison
            is Comparison.BETTER
        )


STAGES = {"preprocessing": ModelSettings(4, 16)}


def staged(
    name: str, stage_s: list[float], mean_s: float = 0.200, start: float = BEGUN + SETTLE_S, n: float = 200.0
) -> list[LatencyBlock]:
    """Equal latency in every block, so that only the stage tells: 200 requests with that much preprocessing each."""
    return [
        replace(b, stage_sums_s={"preprocessing": s * b.requests, "forward": 0.120 * b.requests})
        for b, s in zip(blocks_of(name, [mean_s] * len(stage_s), None, start, n), stage_s, strict=True)
    ]


class TestTimeAtTheChangedStages:
    """The peers wait 14 ms for their one process of 32 ms, more in bursts; the canary has four and waits no more."""

    PEERS = (0.060, 0.038, 0.058, 0.036)
    CANARY = (0.033, 0.032, 0.033, 0.032)
    BEFORE = (0.058, 0.037) * 4

    def look(self, canary: list[LatencyBlock], peers: list[LatencyBlock], **changes: object) -> Finding:
        past = [staged(p, list(self.BEFORE), start=BEGUN - 100.0) for p in ("a", "b")]
        view = replace(server(blocks=tuple(b for bs in (canary, peers, *past) for b in bs)), **changes)  # type: ignore[arg-type]
        return compare(view, change(settings=STAGES), POLICY, BEGUN + 300.0)

    def test_a_queue_that_is_gone_is_a_gain_although_the_whole_hardly_shows_it(self) -> None:
        found = self.look(staged("a", list(self.CANARY), 0.196), staged("b", list(self.PEERS)))
        assert found.comparison is Comparison.BETTER
        assert found.evidence["latency_change_percent"] == -2.0
        # about 32.5 of 47 ms: geometric means 32.5 and 46.8; 48 × (1 − 0.694) of 200 ms
        assert found.evidence["stage_change_percent"] == pytest.approx(-30.6, abs=0.5)
        assert found.evidence["stage_gain_percent"] == pytest.approx(7.3, abs=0.2)
        assert "time at the changed stages" in found.why

    def test_a_gain_of_less_than_two_percent_of_the_latency_is_not_worth_it(self) -> None:
        found = self.look(staged("a", [0.045] * 4), staged("b", [0.048] * 4))
        assert found.comparison is Comparison.INCONCLUSIVE

    def test_a_gain_at_the_stage_that_the_whole_pays_for_is_none(self) -> None:
        found = self.look(staged("a", list(self.CANARY), 0.208), staged("b", list(self.PEERS)))
        assert found.comparison is Comparison.WORSE
        a_little = self.look(staged("a", list(self.CANARY), 0.204), staged("b", list(self.PEERS)))
        assert a_little.comparison is Comparison.INCONCLUSIVE
        assert "mean latency +2.0 %" in a_little.why

    def test_stages_that_the_change_does_not_touch_say_nothing(self) -> None:
        past = [staged(p, list(self.BEFORE), start=BEGUN - 100.0) for p in ("a", "b")]
        blocks = (*staged("a", list(self.CANARY)), *staged("b", list(self.PEERS)), *past[0], *past[1])
        other = change(settings={"forward": ModelSettings(8, 16)})
        assert (
            compare(server(blocks=blocks), other, POLICY, BEGUN + 300.0).comparison is Comparison.INCONCLUSIVE
        )

    def test_queue_and_compute_count_together(self) -> None:
        """Batching: 20 ms less queue and 20 ms more compute are no gain. The sum is all that a block has of it."""
        found = self.look(staged("a", list(self.PEERS)), staged("b", list(self.PEERS)))
        assert found.evidence["stage_change_percent"] == 0.0
        assert found.comparison is Comparison.INCONCLUSIVE

    def test_a_canary_that_saturates_its_gpus_is_not_better(self) -> None:
        pods = (pod("a", gpu_busy={"a-0": Value(0.97), "a-1": Value(0.96)}), pod("b"))
        found = self.look(staged("a", list(self.CANARY)), staged("b", list(self.PEERS)), pods=pods)
        assert found.comparison is Comparison.INCONCLUSIVE
        assert (found.evidence["gpu_busy"], found.evidence["peers_gpu_busy"]) == (0.96, 0.3)

    def test_a_canary_that_starves_its_peers_is_not_better(self) -> None:
        found = self.look(staged("a", list(self.CANARY)), staged("b", list(self.PEERS), 0.220))
        assert found.comparison is Comparison.INCONCLUSIVE
        assert "peers got slower" in found.why

    def test_a_canary_that_completes_less_is_not_better(self) -> None:
        found = self.look(staged("a", list(self.CANARY), n=160.0), staged("b", list(self.PEERS), n=200.0))
        assert found.comparison is Comparison.INCONCLUSIVE
        assert (found.evidence["rate_rps"], found.evidence["peers_rate_rps"]) == (16.0, 20.0)

    def test_the_p99_of_both_sides_is_told(self) -> None:
        times = [(p, s, 0.2 if i else 0.4) for p, s in (("a", 1.0), ("b", 2.0)) for i in range(300)]
        traces = tuple(RequestTrace(p, "chat", BEGUN + 20.0, s * t, {}) for p, s, t in times)
        found = self.look(staged("a", list(self.CANARY)), staged("b", list(self.PEERS)), traces=traces)
        assert (found.evidence["p99_ms"], found.evidence["peers_p99_ms"]) == (200.0, 400.0)


class TestSingleReplica:
    VIEW = server(pods=(pod("a"),), desired_replicas=1)

    def test_before_and_after_at_like_load(self) -> None:
        before = blocks_of("a", [0.30, 0.31, 0.29, 0.30, 0.32, 0.30], start=BEGUN - 100.0)
        found = look(before, blocks_of("a", [0.16, 0.15, 0.16, 0.17]), view=self.VIEW)
        assert found.comparison is Comparison.BETTER

    def test_without_a_time_before_there_is_no_verdict(self) -> None:
        assert look(blocks_of("a", FASTER), view=self.VIEW).comparison is Comparison.INCONCLUSIVE


class TestConfirm:
    def test_the_whole_got_worse(self) -> None:
        before = [blocks_of(p, [0.20, 0.21, 0.20, 0.21, 0.2, 0.2], start=BEGUN - 100.0) for p in ("a", "b")]
        after = [blocks_of(p, [0.30, 0.31, 0.30, 0.32], start=BEGUN + 200.0) for p in ("a", "b")]
        view = replace(server(), blocks=tuple(b for bs in (*before, *after) for b in bs))
        done = change(("a", "b"), phase=Phase.CONFIRM, since=BEGUN + 200.0)
        assert confirm(view, done, POLICY).comparison is Comparison.WORSE

    def test_at_another_load_the_canarys_verdict_stands(self) -> None:
        before = [blocks_of(p, [0.20, 0.21, 0.20, 0.21], start=BEGUN - 100.0, n=100.0) for p in ("a", "b")]
        after = [blocks_of(p, [0.30, 0.31, 0.30, 0.32], start=BEGUN + 200.0, n=200.0) for p in ("a", "b")]
        view = replace(server(), blocks=tuple(b for bs in (*before, *after) for b in bs))
        done = change(("a", "b"), phase=Phase.CONFIRM, since=BEGUN + 200.0)
        assert confirm(view, done, POLICY).comparison is Comparison.INCONCLUSIVE


LEVERS: dict[str, dict[str, ModelSettings]] = {
    "preprocessing": {"preprocessing": ModelSettings(4, 16)},
    "forward": {f"forward-{v}": ModelSettings(2, 16, Batching(5_000)) for v in ("small", "base", "large")},
}


def called(
    view: ServerView, begun: float, settings: dict[str, ModelSettings], looks: int = MAX_LOOKS
) -> tuple[Comparison | None, int]:
    """The first verdict of a canary on the first pod and its look; None when all were inconclusive."""
    names = sorted({b.pod for b in view.blocks})
    seen = replace(view, pods=tuple(pod(name) for name in names))
    starts = sorted({b.start for b in view.blocks if b.start >= begun + SETTLE_S})
    for k in range(looks):
        last = starts[min(4 * (k + 1), len(starts)) - 1]
        known = replace(seen, blocks=tuple(b for b in view.blocks if b.start <= last))
        canary = change((names[0],), started=begun, since=begun, looks=k, settings=settings)
        found = compare(known, canary, POLICY, begun + 300.0)
        if found.comparison in (Comparison.BETTER, Comparison.WORSE):
            return found.comparison, k + 1
    return None, looks


def bursty_pair(seed: int) -> ServerView:
    """Two pods at 10.5 rps each with bursts of 1.6 ×, routed at random: one process of 25 to 65 ms, then two servers of
    120 ms; a quick exact queue."""
    rng = random.Random(seed)
    cells: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for name in ("a", "b"):
        process, free, t = 0.0, [0.0, 0.0], 0.0
        while t < 330.0:
            t += rng.expovariate(16.8)
            if rng.random() * 1.6 > (1.6 if t % 20.0 < 5.0 else 0.8):
                continue
            process = max(t, process) + rng.uniform(0.025, 0.065)
            end = max(process, heapq.heappop(free)) + rng.uniform(0.11, 0.13)
            heapq.heappush(free, end)
            cells.setdefault((name, int(end // 10)), []).append((end - t, process - t))
    blocks = []
    for (name, k), xs in sorted(cells.items()):
        if 1 <= k < 33:
            total, stage = sum(x for x, _ in xs), sum(s for _, s in xs)
            sums = {"preprocessing": stage, "forward-small": total - stage}
            over = float(sum(x > 0.3 for x, _ in xs))
            blocks.append(LatencyBlock(name, "chat", 10.0 * k, 10.0, len(xs), total, 0.0, over, sums))
    return server(blocks=tuple(blocks))


def test_of_four_hundred_unchanged_canaries_at_most_five_percent_are_called() -> None:
    """Both levers' stages on the same pods: which one is looked at makes no difference to an unchanged setting."""
    verdicts = [
        called(view, 140.0, settings)[0]
        for view in map(bursty_pair, range(200))
        for settings in LEVERS.values()
    ]
    assert sum(v is not None for v in verdicts) <= 20
    assert sum(v is Comparison.WORSE for v in verdicts) <= 12, "each pair of pods counts for both levers"


def simulated(seed: int, start: dict[str, ModelSettings], change_: dict[str, ModelSettings]) -> ServerView:
    """Job 1 at 40 requests/s, balanced by least outstanding; from 150 s on the first pod has the change."""
    found = as_found(preprocess_s=0.032, jitter=0.2)
    simulation = Simulation(replace(found, start={**found.start, **start}), 40.0, seed=seed)
    simulation.run_until(150.0)
    simulation.apply("pod-a", change_)
    simulation.run_until(325.0)
    return replace(observe(simulation, pipelines()), traces=())


def test_over_twenty_looks_at_an_unchanged_setting_at_most_one_is_called() -> None:
    """The reference scenario as found, with bursts: five canaries of four looks, for either lever."""
    views = [simulated(100 + seed, {}, {}) for seed in range(5)]
    for settings in LEVERS.values():
        assert sum(called(view, 150.0, settings)[0] is not None for view in views) <= 1


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_job_ones_first_lever_is_better_within_two_looks(seed: int) -> None:
    """One process → four: 22 of 24 seeds were called at the first look, all at the second."""
    lever = LEVERS["preprocessing"]
    verdict, looks = called(simulated(seed, {}, lever), 150.0, lever)
    assert (verdict, looks <= 2) == (Comparison.BETTER, True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_batching_is_better_within_a_few_looks_once_preprocessing_is_out_of_the_way(seed: int) -> None:
    lever = LEVERS["forward"]
    assert called(simulated(seed, LEVERS["preprocessing"], lever), 150.0, lever)[0] is Comparison.BETTER
