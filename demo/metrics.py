"""From Prometheus' series to the demo's figures: mean time per stage, forward quantiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.run_data import Stage

#: pods with GPUs: a pool's are served by name, too, and what they compute the servers already count as theirs
_SERVERS = 'namespace="{namespace}",pod!~".*-pool-[^-]+-[^-]+"'
#: the one query for Triton's families; `namespace` is filled in
TRITON_QUERY = (
    '{{__name__=~"nv_inference_(request_success|queue_duration_us|compute_(input|infer|output)_duration_us)'
    '|nv_inference_compute_infer_summary_us",' + _SERVERS + ',quantile=~"|0.5|0.99"}}'
)
#: the share of its CPU limit that a server's container uses, mean over the servers; of the last two samples, since
#: `rate` over a few of them is too low whenever the last one is a little old
CPU_QUERY = (
    "avg(sum by (pod) (irate(container_cpu_usage_seconds_total{{" + _SERVERS + "}}[30s]))"
    " / sum by (pod) (container_spec_cpu_quota{{" + _SERVERS + "}} / container_spec_cpu_period))"
)
GPU_QUERY = 'avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{namespace="{namespace}"}})'

_COUNT = "nv_inference_request_success"
_QUEUE = "nv_inference_queue_duration_us"
_COMPUTE = tuple(f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output"))
_SUMMARY = "nv_inference_compute_infer_summary_us"
FORWARD = "forward-"


@dataclass(frozen=True, slots=True)
class Series:
    """One series at one moment."""

    name: str
    pod: str
    model: str
    quantile: str
    value: float


Counters = Mapping[tuple[str, str, str], float]


def counters(series: Iterable[Series]) -> Counters:
    """Counter values by (family, pod, model)."""
    found: dict[tuple[str, str, str], float] = {}
    for one in series:
        if one.name != _SUMMARY and math.isfinite(one.value):
            key = (one.name, one.pod, one.model)
            found[key] = found.get(key, 0.0) + one.value
    return found


def forward_quantile_ms(series: Iterable[Series], quantile: str) -> dict[str, float]:
    """By variant, the forward pass's quantile of the worst pod; idle pods (NaN) are left out."""
    found: dict[str, float] = {}
    for one in series:
        wanted = one.name == _SUMMARY and one.quantile == quantile and one.model.startswith(FORWARD)
        if wanted and math.isfinite(one.value):
            variant = one.model.removeprefix(FORWARD)
            found[variant] = max(found.get(variant, 0.0), one.value / 1000)
    return found


def stage_means_ms(before: Counters, after: Counters, client_mean_ms: float | None) -> dict[Stage, float]:
    """Mean time of a request per stage between two readings, over all pods and variants.

    What the client's mean has beyond the server's stages is OTHER (never below 0: the two windows differ a
    little). Empty when nothing was served, or counters of every pod went back.
    """
    grown = _growth(before, after)
    forward = [model for model in {key[1] for key in grown} if model.startswith(FORWARD)]
    requests = sum(grown.get((_COUNT, model), 0.0) for model in forward)
    if requests <= 0:
        return {}

    def mean(families: Iterable[str], models: Iterable[str]) -> float:
        models = list(models)
        served = sum(grown.get((_COUNT, model), 0.0) for model in models)
        total = sum(grown.get((family, model), 0.0) for family in families for model in models)
        return total / served / 1000 if served > 0 else 0.0

    found = {
        Stage.PREPROCESS_WAIT: mean([_QUEUE], ["preprocessing"]),
        Stage.PREPROCESS: mean(_COMPUTE, ["preprocessing"]),
        Stage.FORWARD_WAIT: mean([_QUEUE], forward),
        Stage.FORWARD: mean(_COMPUTE, forward),
        Stage.POSTPROCESS: mean([_QUEUE, *_COMPUTE], ["postprocessing"]),
    }
    if client_mean_ms is not None:
        found[Stage.OTHER] = max(0.0, client_mean_ms - sum(found.values()))
    return found


def _growth(before: Counters, after: Counters) -> dict[tuple[str, str], float]:
    """Growth by (family, model); a counter that went back (its pod restarted) counts from 0."""
    found: dict[tuple[str, str], float] = {}
    for (name, pod, model), value in after.items():
        earlier = before.get((name, pod, model), 0.0)
        growth = value - earlier if value >= earlier else value
        found[name, model] = found.get((name, model), 0.0) + growth
    return found
