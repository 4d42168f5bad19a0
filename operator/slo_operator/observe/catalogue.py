"""Which metric families are read, as data: one line per family, a fixed number of queries per tick.

Expressions are templates: $window is the rate window, $scope the matcher of served namespaces,
$exported the same for exporters whose own namespace label was renamed by the scrape (honor_labels
off). Duplicates of highly available Prometheus pairs or of two scrape jobs fall together in `max`;
the sum over versions and GPUs is taken by the reader. None of them ends in `or vector(0)`: no data
must stay no data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import Template

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe.measured import (
    COMPUTE_SUMMARY,
    COUNTERS,
    PENDING,
    REQUEST_SUMMARY,
    Field,
    PodField,
)

_ROW = "namespace, pod, model, version, gpu_uuid"


@dataclass(frozen=True, slots=True)
class RowQuery:
    """One family of a model's row."""

    field: Field
    template: str


def _counter(field: Field, extra: str = "") -> RowQuery:
    return RowQuery(field, f"max by ({_ROW}{extra}) (increase({COUNTERS[field]}{{$scope}}[$window]))")


TRITON_ROWS: tuple[RowQuery, ...] = (
    *(_counter(field, ", reason" if field is Field.FAILURES else "") for field in COUNTERS),
    RowQuery(Field.PENDING, f"max by ({_ROW}) ({PENDING}{{$scope}})"),
    RowQuery(Field.PENDING_GROWTH, f"max by ({_ROW}) (delta({PENDING}{{$scope}}[$window]))"),
    RowQuery(Field.PENDING_LEAST, f"max by ({_ROW}) (min_over_time({PENDING}{{$scope}}[$window]))"),
)

#: the server's own quantiles over the last 60 s, in microseconds
REQUEST_QUANTILES = f"max by (namespace, pod, model, quantile) ({REQUEST_SUMMARY}{{$scope}})"
COMPUTE_QUANTILES = f"max by (namespace, pod, model, quantile) ({COMPUTE_SUMMARY}{{$scope}})"

#: raw scrapes of one series per pod: scrape interval, coverage of the window, age of the last sample
COVERAGE = 'nv_inference_request_success{$scope, model=~"$probes"}[$window]'

#: raw scrapes of what blocks are made of, for the pods of a change in flight
BLOCKS = (
    '{__name__=~"nv_inference_request_(success|failure|duration_us)", $scope, pod=~"$pods", '
    'model=~"$models"}[$window]'
)

#: of a stage that a pool computes: requests by where they were computed, and those that the pool answered with their
#: seconds by the request's size and whether the member had nothing else to do for this pod
FORWARDED = (
    "max by (namespace, pod, model, result) (increase(inferenceslo_pool_requests_total{$scope}[$window]))"
)
_BY_SIZE = "max by (namespace, pod, model, bytes, found)"
FORWARD_ANSWERS = f"{_BY_SIZE} (increase(inferenceslo_pool_answers_total{{$scope}}[$window]))"
FORWARD_SECONDS = f"{_BY_SIZE} (increase(inferenceslo_pool_seconds_total{{$scope}}[$window]))"

_BY_POD = "namespace, pod, exported_namespace, exported_pod"
_CPU = 'container!="", container!="POD"'


def _two_scopes(body: str, matchers: str = "") -> str:
    """The same family by the pod's own labels, or by an exporter's renamed ones."""
    tail = f", {matchers}" if matchers else ""
    return f"{body.replace('{}', '{$scope' + tail + '}')} or {body.replace('{}', '{$exported' + tail + '}')}"


POD_QUERIES: dict[PodField, str] = {
    PodField.CPU_CORES: _two_scopes(
        f"max by ({_BY_POD}, container, exported_container)"
        " (rate(container_cpu_usage_seconds_total{}[$window]))",
        _CPU,
    ),
    PodField.CPU_THROTTLED: _two_scopes(
        f"max by ({_BY_POD}) (increase(container_cpu_cfs_throttled_periods_total{{}}[$window]))"
        f" / max by ({_BY_POD}) (increase(container_cpu_cfs_periods_total{{}}[$window]))",
        _CPU,
    ),
    PodField.GPU_BUSY: _two_scopes(
        f"max by ({_BY_POD}, UUID, GPU_I_ID) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{}}[$window]))"
    ),
    PodField.GPU_MEMORY_USED: _two_scopes(f"max by ({_BY_POD}, UUID, GPU_I_ID) (DCGM_FI_DEV_FB_USED{{}})"),
    PodField.GPU_MEMORY_FREE: _two_scopes(f"max by ({_BY_POD}, UUID, GPU_I_ID) (DCGM_FI_DEV_FB_FREE{{}})"),
}


def fill(template: str, **values: str) -> str:
    """Put the values into a template; KeyError for one that is missing."""
    return Template(template).substitute(values)


def matcher(label: str, values: tuple[str, ...]) -> str:
    """`label=~"a|b"` with everything quoted, so that a name is never read as an expression."""
    return f'{label}=~"{alternatives(values)}"'


def alternatives(values: tuple[str, ...]) -> str:
    """`a|b`, escaped for RE2 within a double-quoted PromQL string."""
    special = set(".+*?()|[]{}^$\\")
    return "|".join("".join("\\\\" + c if c in special else c for c in v).replace('"', '\\"') for v in values)


def gateway_buckets(config: GatewayHistogramConfig, window: str) -> str:
    """Increase of a gateway's buckets by model, served namespace and status."""
    return _gateway(config, "_bucket", window, ", le")


def gateway_scrapes(config: GatewayHistogramConfig, targets_s: Iterable[float], window: str) -> str:
    """Raw scrapes of the buckets that tell how many requests were over these targets."""
    unit = 1000.0 if config.unit == "milliseconds" else 1.0
    # Prometheus 3 writes whole bounds as 300.0, Prometheus 2 as the exporter does
    texts = {text for t in targets_s for text in (f"{t * unit:g}", str(float(f"{t * unit:g}")))}
    bounds = matcher("le", (*sorted(texts), "+Inf"))
    return f"{config.family}_bucket{_matchers(config, bounds)}[{window}]"


def gateway_age(config: GatewayHistogramConfig, now: float) -> str:
    """Seconds since the newest sample of each model's histogram."""
    by = _gateway_labels(config)
    return f"{now:.3f} - max by ({by}) (timestamp({config.family}_count{_matchers(config)}))"


def _gateway(config: GatewayHistogramConfig, suffix: str, window: str, extra: str) -> str:
    by = _gateway_labels(config)
    status = f", {config.status_label}" if config.status_label else ""
    return f"sum by ({by}{status}{extra}) (increase({config.family}{suffix}{_matchers(config)}[{window}]))"


def _gateway_labels(config: GatewayHistogramConfig) -> str:
    return ", ".join(label for label in (config.model_label, config.namespace_label) if label)


def _matchers(config: GatewayHistogramConfig, *more: str) -> str:
    pairs = (f'{k}="{_quoted(v)}"' for k, v in sorted(config.match_labels.items()))
    return "{" + ", ".join((*pairs, *more)) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
