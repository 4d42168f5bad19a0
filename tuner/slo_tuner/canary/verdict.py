"""Better, worse or inconclusive: the pod with the new setting against its peers over the same minutes.

Requests in bursts are not independent, so the unit is a block of ten seconds: its paired difference
(canary − peers) in log mean latency, in misses, and in the time at the stages that were changed. Looks are
at fixed numbers of blocks; each of the three may say "better" at each look only at its share of 2 % (Bonferroni).
The before and after of the whole count as well: a gateway that sends more to a faster pod relieves the
peers, and the paired difference then shows less than was won.

*Better* = a significant gain in one of them, and no harm: not more misses than tolerated at 95 %, latency
not worse, peers and whole not worse than before, GPUs not saturated by it, its share of the traffic kept.
An unchanged setting must come out inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from slo_tuner.canary import evidence as ev
from slo_tuner.canary.effect import Effect, paired, shift
from slo_tuner.canary.evidence import Period, period
from slo_tuner.canary.report import gpu_busy, numbers, tell
from slo_tuner.memory import Change
from slo_tuner.policy import Policy
from slo_tuner.snapshot import LatencyBlock, ServerView

SETTLE_S = 10.0
HISTORY_S = 300.0
MAX_LOOKS = 4
#: False "better" over all looks, whichever of the three tests says it, for differences spread normally and evenly.
#: Those of real blocks are not: A/A canaries in the simulator come out as better or worse in 2 to 5 of 100.
FALSE_BETTER = 0.02
ALPHA_BETTER = FALSE_BETTER / (3 * MAX_LOOKS)
#: per look and test. A false "worse" loses a lever, a false "better" is still bounded by the tolerance for misses.
ALPHA_WORSE = 0.001
MIN_GAIN = 0.03  # log latency: 3 %; less is not worth a reload
MIN_STAGE_GAIN = 0.02  # of the mean latency of a request
MIN_FEWER_MISSES = 0.005
IMBALANCE = 0.85
LOAD_SHIFT = 1.4
LIKE_LOAD = 0.85
SATURATED = 0.95
#: while the SLO is missed anyway, this share of the peers' misses is the tolerance if it is the larger one
RELATIVE_TOLERANCE = 0.5


class Comparison(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    EARLY = "early"  # not yet at the next look


@dataclass(frozen=True, slots=True)
class Finding:
    """A comparison and its numbers (blocks, latency change in %, misses in points, requests, use of the GPUs).

    `looks` is how many looks are used up with this one; after the last of them, `final`.
    """

    comparison: Comparison
    why: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    final: bool = False
    looks: int = 0


@dataclass(frozen=True, slots=True)
class _Effects:
    """What the change did, by each kind of evidence; None where it is not known."""

    speed: Effect
    misses: Effect | None
    rarer: Effect | None
    stage: Effect | None
    stage_gain: float  # of the mean latency
    whole: Effect | None
    peers: Effect | None
    tolerance: float


def blocks_per_look(policy: Policy) -> int:
    return max(3, int(policy.analysis_s // 10.0))


def compare(view: ServerView, change: Change, policy: Policy, now: float) -> Finding:
    """Judge a change in its first phase; `change.since` is when the canary's settings were seen live."""
    blocks = [b for b in view.blocks if ev.sound(b)]
    canary = change.pods[0]
    peers = sorted({p.name for p in view.ready_pods} - {canary})
    failing = _failures(blocks, change, canary, peers)
    if failing is not None:
        return failing
    after = period((b for b in blocks if b.start >= change.since + SETTLE_S), [canary, *peers])
    needed = blocks_per_look(policy) * (change.looks + 1)
    if len(after) < needed:
        return _early(f"{len(after)} of {needed} blocks seen", "blocks", float(len(after)))
    served = ev.requests(after, [canary])
    if served < policy.min_samples:
        return _early(f"{served:.0f} of {policy.min_samples} requests seen", "requests", served)
    before = _before(blocks, change, [canary, *peers])
    looks = max(change.looks + 1, len(after) // blocks_per_look(policy))
    return _look(view, after, before, canary, peers, change, policy, looks)


def _early(why: str, what: str, count: float) -> Finding:
    return Finding(Comparison.EARLY, why, {what: count})


def _look(
    view: ServerView, after: Period, before: Period, canary: str, peers: Sequence[str], change: Change,
    policy: Policy, looks: int,
) -> Finding:  # fmt: skip
    final = looks >= MAX_LOOKS
    ratio = after.rate / before.rate if len(before) and before.rate > 0 else 1.0
    share = _traffic_share(after, canary, peers)
    effects = _effects(after, before, canary, peers, change, policy)
    seen: dict[str, float] = {"traffic_share": round(share, 2), "load_ratio": round(ratio, 2)}
    seen |= numbers(view, after, canary, peers, change.settings)
    if effects is not None:
        seen |= _evidence(effects)

    def found(comparison: Comparison, why: str, last: bool = final) -> Finding:
        return Finding(comparison, why, seen, last, looks)

    if not 1.0 / LOAD_SHIFT <= ratio <= LOAD_SHIFT:
        return found(Comparison.INCONCLUSIVE, f"load moved to {ratio:.0%} of what it was before", True)
    if effects is None:
        too_few = (
            "too few requests on both sides" if peers else "a single replica and no comparable time before"
        )
        return found(Comparison.INCONCLUSIVE, too_few)
    if _worse(effects, policy):
        if share > 1.0 / IMBALANCE:
            return found(Comparison.INCONCLUSIVE, f"worse, but with {share:.0%} of its peers' traffic")
        return found(Comparison.WORSE, tell("worse", seen), True)
    like = LIKE_LOAD <= ratio <= 1.0 / LIKE_LOAD
    gain = _gain(effects, like)
    harm = _harm(effects, like, view, canary, peers, share)
    if gain and harm:
        return found(Comparison.INCONCLUSIVE, f"{gain}, but {harm}")
    if gain:
        return found(Comparison.BETTER, tell(gain, seen), True)
    return found(Comparison.INCONCLUSIVE, tell("no clear difference", seen))


def _effects(
    after: Period, before: Period, canary: str, peers: Sequence[str], change: Change, policy: Policy
) -> _Effects | None:
    whole = shift(ev.levels(after), ev.levels(before))
    if not peers:  # a single replica: before against after, at like load
        if whole is None:
            return None
        more = shift(ev.miss_levels(after), ev.miss_levels(before))
        usual = ev.miss_share(before, [canary])
        return _Effects(whole, more, None, None, 0.0, whole, None, _tolerance(policy, usual))
    speed = paired(ev.log_latency(after, canary, peers), ev.log_latency(before, canary, peers))
    if speed is None:
        return None
    stages = sorted(change.settings)
    stage = paired(ev.log_stages(after, canary, peers, stages), ev.log_stages(before, canary, peers, stages))
    return _Effects(
        speed=speed,
        misses=paired(ev.misses(after, canary, peers), ev.misses(before, canary, peers)),
        rarer=paired(ev.root_misses(after, canary, peers), ev.root_misses(before, canary, peers)),
        stage=stage,
        stage_gain=_stage_gain(after, canary, peers, stages, stage),
        whole=whole,
        peers=shift(ev.levels(after, peers), ev.levels(before, peers)),
        tolerance=_tolerance(policy, ev.miss_share(after, peers)),
    )


def _tolerance(policy: Policy, usual_misses: float | None) -> float:
    return max(policy.max_extra_misses, RELATIVE_TOLERANCE * (usual_misses or 0.0))


def _stage_gain(
    after: Period, canary: str, peers: Sequence[str], stages: Sequence[str], effect: Effect | None
) -> float:
    """The time that a request saves at the changed stages, as a share of its mean latency on the peers."""
    times = ev.stage_times(after, canary, peers, stages)
    latency = ev.mean_latency(after, peers)
    if effect is None or times is None or not latency:
        return 0.0
    return -math.expm1(effect.mean) * times.peers_s / latency


def _worse(e: _Effects, policy: Policy) -> bool:
    more = (
        e.misses is not None and e.misses.mean > policy.max_extra_misses and e.misses.lower(ALPHA_WORSE) > 0.0
    )
    return more or _slower(e.speed)


def _slower(effect: Effect | None) -> bool:
    return effect is not None and effect.lower(ALPHA_WORSE) > 0.0 and effect.mean > MIN_GAIN


def _gain(e: _Effects, like: bool) -> str:
    """What got significantly better; empty when nothing did."""
    if _sure(e.speed) and e.speed.mean < -MIN_GAIN:
        return "faster"
    if (
        like
        and _sure(e.whole)
        and e.whole is not None
        and e.whole.mean < -2 * MIN_GAIN
        and e.speed.mean < 0.0
    ):
        return "faster than before"
    if _sure(e.rarer) and e.misses is not None and e.misses.mean < -MIN_FEWER_MISSES:
        return "fewer misses"
    if _sure(e.stage) and e.stage_gain >= MIN_STAGE_GAIN:
        return "less time at the changed stages"
    return ""


def _sure(effect: Effect | None) -> bool:
    return effect is not None and effect.upper(ALPHA_BETTER) < 0.0


def _harm(e: _Effects, like: bool, view: ServerView, canary: str, peers: Sequence[str], share: float) -> str:
    """What speaks against a gain; empty when nothing does."""
    if share < IMBALANCE:  # what it did not complete, queues in front of it or went elsewhere
        return f"with only {share:.0%} of its peers' traffic"
    if e.misses is not None and e.misses.upper(0.05) > e.tolerance:
        return f"misses may be up by {100.0 * e.misses.upper(0.05):.2f} points"
    if e.speed.mean > MIN_GAIN or e.speed.lower(0.05) > 0.0:
        return f"mean latency {100.0 * math.expm1(e.speed.mean):+.1f} %"
    if like and _slower(e.peers):
        return "its peers got slower than before"
    if like and _slower(e.whole):
        return "the whole got slower than before"
    busy, theirs = gpu_busy(view, [canary]), gpu_busy(view, peers)
    if busy is not None and theirs is not None and busy > SATURATED >= theirs:
        return f"its GPUs are busy {busy:.0%} of the time"
    return ""


def confirm(view: ServerView, change: Change, policy: Policy) -> Finding:
    """The whole server since the last pod was promoted against the baseline before the change."""
    blocks = [b for b in view.blocks if ev.sound(b)]
    pods = [p.name for p in view.ready_pods]
    after = period((b for b in blocks if b.start >= change.since), pods)
    before = _before(blocks, change, pods)
    if len(after) < blocks_per_look(policy):
        return Finding(Comparison.EARLY, f"{len(after)} of {blocks_per_look(policy)} blocks seen")
    whole = shift(ev.levels(after), ev.levels(before))
    ratio = after.rate / before.rate if len(before) and before.rate > 0 else 0.0
    seen = {"blocks": float(len(after)), "load_ratio": round(ratio, 2)}
    if whole is None or not LIKE_LOAD <= ratio <= 1.0 / LIKE_LOAD:
        stands = "no like load to compare with; the canary's verdict stands"
        return Finding(Comparison.INCONCLUSIVE, stands, seen, True)
    misses = shift(ev.miss_levels(after), ev.miss_levels(before))
    seen["latency_change_percent"] = round(100.0 * math.expm1(whole.mean), 1)
    more = misses is not None and misses.lower(ALPHA_WORSE) > 0.0 and misses.mean > policy.max_extra_misses
    if more or _slower(whole):
        return Finding(Comparison.WORSE, tell("worse than before the change", seen), seen, True)
    return Finding(Comparison.BETTER, tell("confirmed", seen), seen, True)


def _before(blocks: Sequence[LatencyBlock], change: Change, pods: Sequence[str]) -> Period:
    """The time between the last action and this change, five minutes at most, at the load under which it began."""
    valid_from = max(change.baseline.get("valid_from", 0.0), change.started - HISTORY_S)
    mine = (b for b in blocks if valid_from <= b.start and b.start + b.seconds <= change.started)
    return ev.at_present_load(period(mine, pods))


def _traffic_share(after: Period, canary: str, peers: Sequence[str]) -> float:
    if not peers:
        return 1.0
    return ev.requests(after, [canary]) / max(1e-9, ev.requests(after, peers) / len(peers))


def _failures(
    blocks: Sequence[LatencyBlock], change: Change, canary: str, peers: Sequence[str]
) -> Finding | None:
    """Failures count from the moment of the change, not only after it settled: one window is enough to roll back."""
    since = [b for b in blocks if b.start + b.seconds > change.started]
    mine = math.fsum(b.failures for b in since if b.pod == canary)
    served = math.fsum(b.requests + b.failures for b in since if b.pod == canary)
    theirs = math.fsum(b.failures for b in since if b.pod in peers)
    others = math.fsum(b.requests + b.failures for b in since if b.pod in peers)
    usual = (theirs / others if others > 0 else 0.0) + change.baseline.get("failure_share", 0.0)
    if mine >= 2.0 and mine / max(served, 1.0) > max(0.002, 2.0 * usual):
        return Finding(
            Comparison.WORSE, f"{mine:.0f} of {served:.0f} requests failed on {canary}, peers {usual:.1%}",
            {"failures": mine, "requests": served}, True,
        )  # fmt: skip
    return None


def _evidence(e: _Effects) -> dict[str, float]:
    found = {
        "latency_change_percent": round(100.0 * math.expm1(e.speed.mean), 1),
        "latency_t": round(e.speed.mean / e.speed.error, 1),
    }
    if e.misses is not None:
        found["misses_change_points"] = round(100.0 * e.misses.mean, 2)
        found["misses_upper_points"] = round(100.0 * e.misses.upper(0.05), 2)
    if e.stage is not None:
        found["stage_change_percent"] = round(100.0 * math.expm1(e.stage.mean), 1)
        found["stage_gain_percent"] = round(100.0 * e.stage_gain, 1)
        found["stage_t"] = round(e.stage.mean / e.stage.error, 1)
    if e.whole is not None:
        found["whole_change_percent"] = round(100.0 * math.expm1(e.whole.mean), 1)
    return found
