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
from slo_tuner.simulator.pipeline import Simulation
from slo_tuner.simulator.view import observe
from slo_tuner.snapshot import LatencyBlock, ServerView
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


def called(
    view: ServerView, names: tuple[str, str], begun: float, looks: int = MAX_LOOKS
) -> Comparison | None:
    """The first verdict of a canary over its looks; None when all were inconclusive."""
    starts = sorted({b.start for b in view.blocks if b.start >= begun + SETTLE_S})
    pods = tuple(pod(name) for name in names)
    for k in range(looks):
        last = starts[min(4 * (k + 1), len(starts)) - 1]
        seen = replace(view, pods=pods, blocks=tuple(b for b in view.blocks if b.start <= last))
        found = compare(seen, change((names[0],), started=begun, since=begun, looks=k), POLICY, begun + 300.0)
        if found.comparison in (Comparison.BETTER, Comparison.WORSE):
            return found.comparison
    return None


def bursty_pair(seed: int) -> ServerView:
    """Two pods of two servers of 120 ms at 10.5 rps each with bursts of 1.6 ×, routed at random: a quick exact queue."""
    rng = random.Random(seed)
    cells: dict[tuple[str, int], list[float]] = {}
    for name in ("a", "b"):
        free, t = [0.0, 0.0], 0.0
        while t < 330.0:
            t += rng.expovariate(16.8)
            if rng.random() * 1.6 > (1.6 if t % 20.0 < 5.0 else 0.8):
                continue
            start = max(t, heapq.heappop(free))
            end = start + rng.uniform(0.11, 0.13)
            heapq.heappush(free, end)
            cells.setdefault((name, int(end // 10)), []).append(end - t)
    blocks = [
        LatencyBlock(name, "chat", 10.0 * k, 10.0, len(xs), sum(xs), 0.0, sum(x > 0.3 for x in xs))
        for (name, k), xs in sorted(cells.items())
        if 1 <= k < 33
    ]
    return server(blocks=tuple(blocks))


def test_over_two_hundred_unchanged_canaries_at_most_five_percent_are_called() -> None:
    verdicts = [called(bursty_pair(seed), ("a", "b"), begun=140.0) for seed in range(200)]
    assert sum(v is not None for v in verdicts) <= 10
    assert sum(v is Comparison.WORSE for v in verdicts) <= 4


def test_over_twenty_looks_at_an_unchanged_setting_at_most_one_is_called() -> None:
    """The reference scenario as found, with bursts: five canaries of four looks."""
    verdicts = []
    for seed in range(5):
        simulation = Simulation(as_found(), 40.0, seed=100 + seed)
        simulation.run_until(320.0)
        view = observe(simulation, pipelines(), traces=False)
        verdicts.append(called(view, ("pod-a", "pod-b"), begun=150.0))
    assert sum(v is not None for v in verdicts) <= 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_batching_on_saturated_instances_is_better_within_a_few_looks(seed: int) -> None:
    found = as_found()
    found = replace(found, start={**found.start, "preprocessing": ModelSettings(4, 16)})
    simulation = Simulation(found, 40.0, seed=seed)
    simulation.run_until(150.0)
    simulation.apply(
        "pod-a", {f"forward-{v}": ModelSettings(2, 16, Batching(1_000)) for v in ("small", "base", "large")}
    )
    simulation.run_until(340.0)
    view = observe(simulation, pipelines(), traces=False)
    assert called(view, ("pod-a", "pod-b"), begun=150.0) is Comparison.BETTER
