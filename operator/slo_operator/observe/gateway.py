"""Client-side latency histograms of gateways: the best evidence for a quantile over several pods."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe import catalogue
from slo_operator.observe.prometheus import Querier, Sample
from slo_tuner.snapshot import GatewayHistogram

#: (namespace, model); an empty namespace when the family does not say
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Gateway:
    """One model's histogram over one window, and the namespace it belongs to ("" = any)."""

    namespace: str
    histogram: GatewayHistogram


def read_gateway(
    querier: Querier, config: GatewayHistogramConfig, windows: tuple[float, ...], at: float
) -> list[Gateway]:
    """Every model's histogram over each window. Raises PrometheusError."""
    ages = _ages(querier.vector(catalogue.gateway_age(config, at), at), config)
    out = []
    for window_s in windows:
        samples = querier.vector(catalogue.gateway_buckets(config, f"{window_s:.0f}s"), at)
        for key, (buckets, failures) in _histograms(samples, config).items():
            if key not in ages:  # no sample within the look-back: the gateway is gone
                continue
            histogram = GatewayHistogram(
                model=key[1],
                window_s=window_s,
                buckets=buckets,
                failures=failures,
                source=f"gateway {config.family}",
                age_s=ages[key],
            )
            out.append(Gateway(key[0], histogram))
    return out


def key_of(labels: Mapping[str, str], config: GatewayHistogramConfig) -> _Key:
    """Whose requests a series counts."""
    namespace = labels.get(config.namespace_label, "") if config.namespace_label else ""
    return namespace, labels.get(config.model_label, "")


def bound_of(labels: Mapping[str, str], config: GatewayHistogramConfig) -> float:
    """A bucket's upper bound in seconds; NaN where there is none."""
    try:
        bound = float(labels.get("le", "nan"))
    except ValueError:
        return math.nan
    return bound * (0.001 if config.unit == "milliseconds" else 1.0)


def succeeded(labels: Mapping[str, str], config: GatewayHistogramConfig) -> bool:
    """Whether a series counts requests that were answered well."""
    return not config.status_label or bool(re.fullmatch(config.success, labels.get(config.status_label, "")))


def _ages(samples: list[Sample], config: GatewayHistogramConfig) -> dict[_Key, float]:
    return {key_of(s.labels, config): max(0.0, s.value) for s in samples if math.isfinite(s.value)}


def _histograms(
    samples: list[Sample], config: GatewayHistogramConfig
) -> dict[_Key, tuple[tuple[tuple[float, float], ...], float]]:
    """Buckets of answered requests, and how many failed; histograms that are none are left out."""
    counts: dict[_Key, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    failures: dict[_Key, float] = defaultdict(float)
    broken: set[_Key] = set()
    for sample in samples:
        key = key_of(sample.labels, config)
        bound = bound_of(sample.labels, config)
        if not math.isfinite(sample.value) or sample.value < 0 or math.isnan(bound):
            broken.add(key)
            continue
        if succeeded(sample.labels, config):
            counts[key][bound] += sample.value
        else:
            failures[key] += sample.value if math.isinf(bound) else 0.0
    out = {}
    for key in (counts.keys() | failures.keys()) - broken:
        buckets = tuple(sorted(counts[key].items()))
        if _cumulative(buckets):
            out[key] = (buckets, failures[key])
    return out


def _cumulative(buckets: tuple[tuple[float, float], ...]) -> bool:
    """Ascending counts that end at +Inf; a lagging +Inf bucket (scrape torn in two) is no histogram."""
    if not buckets:
        return True  # only failures
    if not math.isinf(buckets[-1][0]):
        return False
    values = [v for _, v in buckets]
    return all(a <= b * (1 + 1e-9) + 1e-9 for a, b in pairwise(values))
