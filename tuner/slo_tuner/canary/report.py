"""The numbers of both sides that a verdict shows: p99, misses, completed rate, use of the GPUs; and its sentence."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from slo_tuner.canary import evidence as ev
from slo_tuner.canary.evidence import Period
from slo_tuner.diagnosis.rows import number
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Value
from slo_tuner.snapshot import ServerView
from slo_tuner.stats import mean, quantile

#: a p99 of fewer requests is the time of one of them
ENOUGH_FOR_P99 = 200


def numbers(
    view: ServerView, after: Period, canary: str, peers: Collection[str], changed: PodSettings
) -> dict[str, float]:
    """What each side did in that period, peers on average; figures that are not known are left out. A stage that moved
    adds what the way to the pool takes."""
    found = {"blocks": float(len(after)), "requests": ev.requests(after, [canary])}
    since = min(after.cells, default=math.inf)
    seconds = math.fsum(cell[0].seconds for cell in after.cells.values())
    for prefix, pods in (("", [canary]), ("peers_", list(peers))):
        if not pods or seconds <= 0:
            continue
        found[f"{prefix}rate_rps"] = round(ev.requests(after, pods) / seconds / len(pods), 2)
        shown = {
            "p99_ms": (_p99(view, pods, since), 1e3),
            "misses_percent": (ev.miss_share(after, pods), 100.0),
            "gpu_busy": (gpu_busy(view, pods), 1.0),
            "cpu_cores": (_cpu_cores(view, pods), 1.0),
        }
        found |= {prefix + k: round(scale * v, 2) for k, (v, scale) in shown.items() if v is not None}
    network = number(view.stage_pool.network_s) if view.stage_pool is not None else None
    if network is not None and any(s.remote is not None for s in changed.values()):
        found["network_ms"] = round(1e3 * network, 2)
    return found


def gpu_busy(view: ServerView, pods: Collection[str]) -> float | None:
    """Mean busy share of these pods' GPUs; None when none of them is known."""
    signals = [s for p in view.pods if p.name in pods for s in p.gpu_busy.values()]
    known = [s.value for s in signals if isinstance(s, Value) and math.isfinite(s.value)]
    return mean(known) if known else None


def _cpu_cores(view: ServerView, pods: Collection[str]) -> float | None:
    known = [used for p in view.pods if p.name in pods if (used := number(p.cpu_used_cores)) is not None]
    return mean(known) if known else None


def _p99(view: ServerView, pods: Collection[str], since: float) -> float | None:
    times = [
        t.latency_s for t in view.traces if t.pod in pods and t.start >= since and math.isfinite(t.latency_s)
    ]
    return quantile(times, 0.99) if len(times) >= ENOUGH_FOR_P99 else None


def tell(what: str, e: Mapping[str, float]) -> str:
    """One sentence for people: the verdict and the numbers that it rests on."""
    parts = [f"{what} over {e['blocks']:.0f} blocks"]
    if "latency_change_percent" in e:
        parts.append(f"mean latency {e['latency_change_percent']:+.1f} %")
    if "stage_change_percent" in e:
        parts.append(f"time at the changed stages {e['stage_change_percent']:+.1f} %")
    if "misses_change_points" in e:
        parts.append(
            f"misses {e['misses_change_points']:+.2f} points (95 %: below {e['misses_upper_points']:+.2f})"
        )
    if {"network_ms", "cpu_cores", "peers_cpu_cores"} <= e.keys():
        parts.append(
            f"{e['cpu_cores']:.2f} cores used and {e['peers_cpu_cores']:.2f} by its peers,"
            f" {e['network_ms']:.2g} ms to the pool and back"
        )
    return ", ".join(parts)
