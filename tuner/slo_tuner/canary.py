"""Better, worse or inconclusive: the pod with the new setting against its peers over the same minutes.

Requests in bursts are not independent, so the unit is a block of ten seconds: its paired difference
(canary − mean of peers) in log mean latency, averaged over the pipelines, and in the share of misses.
Looks are at fixed numbers of blocks, each at a level that keeps all looks together under 5 %. Where
blocks from before the change exist, the pods' own difference then is taken out (Welch's t), which also
removes a slower node. The before and after of the whole count as evidence too: a gateway that sends
more to a faster pod relieves the peers, and the paired difference then shows less than was won.

*Better* = significantly faster, or fewer misses, and not more misses than `max_extra_misses` at 95 %.
An unchanged setting must come out inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from slo_tuner.memory import Change
from slo_tuner.policy import Policy
from slo_tuner.snapshot import LatencyBlock, ServerView
from slo_tuner.stats import mean, t_quantile, variance

SETTLE_S = 10.0
HISTORY_S = 300.0
MAX_LOOKS = 4
ENOUGH = 6  # blocks from which the pairs speak for themselves; with fewer, the time before lends its spread
#: levels per look, test and side; what they add up to over all looks is measured by A/A canaries in the tests.
#: A false "worse" loses a lever, a false "better" is still bounded by the tolerance for misses.
ALPHA_WORSE = 0.003
ALPHA_BETTER = 0.01
ALPHA_MISSES = 0.015
MIN_GAIN = 0.03  # log latency: 3 %; less is not worth a reload
MIN_REQUESTS = 5.0
IMBALANCE = 0.85
LOAD_SHIFT = 1.4
#: while the SLO is missed anyway, this share of the peers' misses is the tolerance if it is the larger one
RELATIVE_TOLERANCE = 0.5


class Comparison(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    EARLY = "early"  # not yet at the next look


@dataclass(frozen=True, slots=True)
class Finding:
    """A comparison and its numbers (blocks, latency change in %, misses in points, requests)."""

    comparison: Comparison
    why: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    final: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean, standard error and degrees of freedom of a difference."""

    mean: float
    error: float
    dof: float

    def upper(self, alpha: float) -> float:
        return self.mean + t_quantile(1.0 - alpha, self.dof) * self.error

    def lower(self, alpha: float) -> float:
        return self.mean - t_quantile(1.0 - alpha, self.dof) * self.error


def blocks_per_look(policy: Policy) -> int:
    return max(3, int(policy.analysis_s // 10.0))


def compare(view: ServerView, change: Change, policy: Policy, now: float) -> Finding:
    """Judge a change in its first phase; `change.since` is when the canary's settings were seen live."""
    blocks = [b for b in view.blocks if _sound(b)]
    canary = change.pods[0]
    peers = sorted({p.name for p in view.ready_pods} - {canary})
    after = [b for b in blocks if b.start >= change.since + SETTLE_S]
    valid_from = max(change.baseline.get("valid_from", 0.0), change.started - HISTORY_S)
    before = [b for b in blocks if valid_from <= b.start and b.start + b.seconds <= change.started]
    failing = _failures(after, blocks, change, canary, peers)
    if failing is not None:
        return failing
    starts = _common(after, [canary, *peers]) if peers else _common(after, [canary])
    needed = blocks_per_look(policy) * (change.looks + 1)
    if len(starts) < needed:
        return Finding(
            Comparison.EARLY, f"{len(starts)} of {needed} blocks seen", {"blocks": float(len(starts))}
        )
    served = _requests(after, [canary], starts)
    if served < policy.min_samples:
        return Finding(
            Comparison.EARLY, f"{served:.0f} of {policy.min_samples} requests seen", {"requests": served}
        )
    return _look(after, before, canary, peers, starts, change, policy)


def _look(
    after: Sequence[LatencyBlock], before: Sequence[LatencyBlock], canary: str, peers: Sequence[str],
    starts: Sequence[float], change: Change, policy: Policy,
) -> Finding:  # fmt: skip
    final = change.looks + 1 >= MAX_LOOKS
    past = _common(before, [canary, *peers])
    whole = _before_after(after, before, starts, past)
    ratio = _rate(after, starts) / _rate(before, past) if past and _rate(before, past) > 0 else 1.0
    if peers:
        speed = _difference(
            _log_differences(after, canary, peers, starts), _log_differences(before, canary, peers, past)
        )
        misses = _difference(
            _miss_differences(after, canary, peers, starts), _miss_differences(before, canary, peers, past)
        )
        rarer = _difference(
            _root_differences(after, canary, peers, starts), _root_differences(before, canary, peers, past)
        )
        share = _requests(after, [canary], starts) / max(1e-9, _requests(after, peers, starts) / len(peers))
        peer_misses = _miss_share(after, peers, starts)
    else:  # a single replica: before against after, at like load
        speed, share, rarer = whole, 1.0, None
        misses = _difference(_miss_levels(after, starts), _miss_levels(before, past), two_sided=True)
        peer_misses = _miss_share(before, [canary], past)
        if speed is None:
            return Finding(
                Comparison.INCONCLUSIVE, "a single replica and no comparable time before", {}, final
            )
    evidence = _evidence(len(starts), speed, misses, whole, share, ratio, _requests(after, [canary], starts))
    if not 1.0 / LOAD_SHIFT <= ratio <= LOAD_SHIFT:
        return Finding(
            Comparison.INCONCLUSIVE, f"load moved to {ratio:.0%} of what it was before", evidence, True
        )
    if speed is None:
        return Finding(Comparison.INCONCLUSIVE, "too few requests on both sides", evidence, final)
    tolerance = max(policy.max_extra_misses, RELATIVE_TOLERANCE * (peer_misses or 0.0))
    slower = speed.lower(ALPHA_WORSE) > 0.0 and speed.mean > MIN_GAIN
    more_misses = (
        misses is not None and misses.mean > policy.max_extra_misses and misses.lower(ALPHA_WORSE) > 0.0
    )
    if slower or more_misses:
        if share > 1.0 / IMBALANCE:
            return Finding(
                Comparison.INCONCLUSIVE, f"worse, but with {share:.0%} of its peers' traffic", evidence, final
            )
        return Finding(Comparison.WORSE, _tell("worse", evidence), evidence, True)
    like = 0.85 <= ratio <= 1.0 / 0.85
    faster = speed.upper(ALPHA_BETTER) < 0.0 and speed.mean < -MIN_GAIN
    fewer = (
        rarer is not None and rarer.upper(ALPHA_MISSES) < 0.0 and misses is not None and misses.mean < -0.005
    )
    all_faster = (
        like
        and whole is not None
        and whole.upper(ALPHA_BETTER) < 0.0
        and whole.mean < -2 * MIN_GAIN
        and speed.mean < 0.0
    )
    harmless = misses is None or misses.upper(0.05) <= tolerance
    whole_worse = like and whole is not None and whole.lower(ALPHA_WORSE) > 0.0 and whole.mean > MIN_GAIN
    if (faster or fewer or all_faster) and harmless and speed.upper(0.05) < 0.05 and not whole_worse:
        if share < IMBALANCE:
            return Finding(
                Comparison.INCONCLUSIVE,
                f"better, but with only {share:.0%} of its peers' traffic",
                evidence,
                final,
            )
        return Finding(Comparison.BETTER, _tell("better", evidence), evidence, True)
    return Finding(Comparison.INCONCLUSIVE, _tell("no clear difference", evidence), evidence, final)


def confirm(view: ServerView, change: Change, policy: Policy) -> Finding:
    """The whole server since the last pod was promoted against the baseline before the change."""
    blocks = [b for b in view.blocks if _sound(b)]
    after = [b for b in blocks if b.start >= change.since]
    valid_from = max(change.baseline.get("valid_from", 0.0), change.started - HISTORY_S)
    before = [b for b in blocks if valid_from <= b.start and b.start + b.seconds <= change.started]
    pods = [p.name for p in view.ready_pods]
    starts, past = _common(after, pods), _common(before, pods)
    if len(starts) < blocks_per_look(policy):
        return Finding(Comparison.EARLY, f"{len(starts)} of {blocks_per_look(policy)} blocks seen")
    whole = _before_after(after, before, starts, past)
    ratio = _rate(after, starts) / _rate(before, past) if past and _rate(before, past) > 0 else 0.0
    evidence = {"blocks": float(len(starts)), "load_ratio": round(ratio, 2)}
    if whole is None or not 0.85 <= ratio <= 1.0 / 0.85:
        return Finding(
            Comparison.INCONCLUSIVE,
            "no like load to compare with; the canary's verdict stands",
            evidence,
            True,
        )
    misses = _difference(_miss_levels(after, starts), _miss_levels(before, past), two_sided=True)
    evidence["latency_change_percent"] = round(100.0 * math.expm1(whole.mean), 1)
    more = misses is not None and misses.lower(ALPHA_WORSE) > 0.0 and misses.mean > policy.max_extra_misses
    if more or (whole.lower(ALPHA_WORSE) > 0.0 and whole.mean > MIN_GAIN):
        return Finding(Comparison.WORSE, _tell("worse than before the change", evidence), evidence, True)
    return Finding(Comparison.BETTER, _tell("confirmed", evidence), evidence, True)


def _failures(
    after: Sequence[LatencyBlock],
    blocks: Sequence[LatencyBlock],
    change: Change,
    canary: str,
    peers: Sequence[str],
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


def _difference(after: Sequence[float], before: Sequence[float], two_sided: bool = False) -> Effect | None:
    """Effect of the change on a per-block difference. With at least six blocks before, theirs is subtracted
    (Welch); `two_sided` demands them.
    """
    n, m = len(after), len(before)
    if n < 3 or (two_sided and m < 3):
        return None
    own = max(variance(after), 1e-8) / n
    if m < (3 if two_sided else 6) or (not two_sided and n >= ENOUGH):
        return Effect(mean(after), math.sqrt(own), n - 1)
    old = max(variance(before), 1e-8) / m
    dof = (own + old) ** 2 / (own**2 / (n - 1) + old**2 / (m - 1))
    return Effect(mean(after) - mean(before), math.sqrt(own + old), max(1.0, dof))


def _log_differences(
    blocks: Sequence[LatencyBlock], canary: str, peers: Sequence[str], starts: Sequence[float]
) -> list[float]:
    found = []
    for start in starts:
        now = [b for b in blocks if b.start == start]
        per_model = []
        for model in sorted({b.model for b in now}):
            a, b = _mean_latency(now, [canary], model), _mean_latency(now, peers, model)
            if a is not None and b is not None:
                per_model.append(math.log(a / b))
        if per_model:
            found.append(mean(per_model))
    return found


def _before_after(
    after: Sequence[LatencyBlock],
    before: Sequence[LatencyBlock],
    starts: Sequence[float],
    past: Sequence[float],
) -> Effect | None:
    return _difference(_levels(after, starts), _levels(before, past), two_sided=True)


def _levels(blocks: Sequence[LatencyBlock], starts: Sequence[float]) -> list[float]:
    """Log mean latency per block over all pods, averaged over the pipelines that every block has."""
    pods = sorted({b.pod for b in blocks})
    found = []
    for start in starts:
        now = [b for b in blocks if b.start == start]
        values = [v for m in sorted({b.model for b in now}) if (v := _mean_latency(now, pods, m)) is not None]
        if values:
            found.append(mean([math.log(v) for v in values]))
    return found


def _mean_latency(blocks: Sequence[LatencyBlock], pods: Sequence[str], model: str) -> float | None:
    mine = [b for b in blocks if b.model == model and b.pod in pods]
    requests = math.fsum(b.requests for b in mine)
    seconds = math.fsum(b.latency_sum_s for b in mine)
    return seconds / requests if requests >= MIN_REQUESTS and seconds > 0 else None


def _root_differences(
    blocks: Sequence[LatencyBlock], canary: str, peers: Sequence[str], starts: Sequence[float]
) -> list[float]:
    """Differences of the square roots of miss shares. Misses come in bursts, so that their spread grows with their
    number; the root makes it even, and one bad block of the peers does not hide nine better ones."""
    found = []
    for start in starts:
        a, b = _miss_share(blocks, [canary], [start]), _miss_share(blocks, peers, [start])
        if a is not None and b is not None:
            found.append(math.sqrt(a) - math.sqrt(b))
    return found


def _miss_differences(
    blocks: Sequence[LatencyBlock], canary: str, peers: Sequence[str], starts: Sequence[float]
) -> list[float]:
    found = []
    for start in starts:
        a, b = _miss_share(blocks, [canary], [start]), _miss_share(blocks, peers, [start])
        if a is not None and b is not None:
            found.append(a - b)
    return found


def _miss_levels(blocks: Sequence[LatencyBlock], starts: Sequence[float]) -> list[float]:
    pods = sorted({b.pod for b in blocks})
    return [s for start in starts if (s := _miss_share(blocks, pods, [start])) is not None]


def _miss_share(blocks: Sequence[LatencyBlock], pods: Sequence[str], starts: Sequence[float]) -> float | None:
    mine = [b for b in blocks if b.pod in pods and b.start in starts]
    requests = math.fsum(b.requests + b.failures for b in mine)
    if requests < MIN_REQUESTS or any(b.misses is None for b in mine):
        return None
    return math.fsum((b.misses or 0.0) + b.failures for b in mine) / requests


def _common(blocks: Sequence[LatencyBlock], pods: Sequence[str]) -> list[float]:
    """Block starts in which every one of these pods answered."""
    seen: dict[float, set[str]] = {}
    for b in blocks:
        if b.requests > 0:
            seen.setdefault(b.start, set()).add(b.pod)
    return sorted(s for s, names in seen.items() if names >= set(pods))


def _requests(blocks: Sequence[LatencyBlock], pods: Sequence[str], starts: Sequence[float]) -> float:
    return math.fsum(b.requests for b in blocks if b.pod in pods and b.start in starts)


def _rate(blocks: Sequence[LatencyBlock], starts: Sequence[float]) -> float:
    mine = [b for b in blocks if b.start in starts]
    seconds = math.fsum({b.start: b.seconds for b in mine}.values())
    return math.fsum(b.requests for b in mine) / seconds if seconds > 0 else 0.0


def _sound(b: LatencyBlock) -> bool:
    numbers = (b.start, b.seconds, b.requests, b.latency_sum_s, b.failures, b.misses or 0.0)
    return all(math.isfinite(x) and x >= 0 for x in numbers) and b.seconds > 0


def _evidence(
    n: int,
    speed: Effect | None,
    misses: Effect | None,
    whole: Effect | None,
    share: float,
    ratio: float,
    requests: float,
) -> dict[str, float]:
    found = {
        "blocks": float(n),
        "requests": requests,
        "traffic_share": round(share, 2),
        "load_ratio": round(ratio, 2),
    }
    if speed is not None:
        found["latency_change_percent"] = round(100.0 * math.expm1(speed.mean), 1)
        found["latency_t"] = round(speed.mean / speed.error, 1)
    if misses is not None:
        found["misses_change_points"] = round(100.0 * misses.mean, 2)
        found["misses_upper_points"] = round(100.0 * misses.upper(0.05), 2)
    if whole is not None:
        found["whole_change_percent"] = round(100.0 * math.expm1(whole.mean), 1)
    return found


def _tell(what: str, e: Mapping[str, float]) -> str:
    parts = [f"{what} over {e['blocks']:.0f} blocks"]
    if "latency_change_percent" in e:
        parts.append(f"mean latency {e['latency_change_percent']:+.1f} %")
    if "misses_change_points" in e:
        parts.append(
            f"misses {e['misses_change_points']:+.2f} points (95 %: below {e['misses_upper_points']:+.2f})"
        )
    return ", ".join(parts)
