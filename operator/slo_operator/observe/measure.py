"""One tick's measurements: ask the catalogue's queries and check what comes back.

A number passes only when it is finite, not negative, and its pod's samples cover the window; what
does not pass is left out, and whoever builds the snapshot turns the gap into an `Unknown`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe import catalogue
from slo_operator.observe.gateway import Gateway, read_gateway
from slo_operator.observe.measured import (
    MIN_SAMPLES,
    Coverage,
    Field,
    Forwarded,
    Measurements,
    PodField,
    PodKey,
    RowKey,
)
from slo_operator.observe.prometheus import PrometheusError, Querier, RawSeries, Sample

MIN_WINDOW_S = 60.0
MAX_WINDOW_S = 240.0
#: before the scrape interval is known: four scrapes of a minute each
FIRST_WINDOW_S = MAX_WINDOW_S

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scope:
    """What this tick asks about: all served resources together.

    probes: one client-facing model per server. slo_windows_s: the distinct windows of objectives.
    block_pods, block_models: whose raw scrapes are asked for; block_seconds: how far back.
    targets_s: what misses are counted against; miss_seconds: how far back gateways are asked for them.
    """

    namespaces: tuple[str, ...]
    probes: tuple[str, ...]
    slo_windows_s: tuple[float, ...] = ()
    block_pods: tuple[str, ...] = ()
    block_models: tuple[str, ...] = ()
    block_seconds: float = 0.0
    targets_s: tuple[float, ...] = ()
    miss_seconds: float = 0.0


def next_window(coverage: Iterable[Coverage]) -> float:
    """Rate window for the next tick: at least four observed scrape intervals, between 60 and 240 s."""
    intervals = [c.interval_s for c in coverage if c.interval_s > 0]
    if not intervals:
        return FIRST_WINDOW_S
    # The slowest of the usual: one odd target must not stretch everybody's window.
    slow = sorted(intervals)[int(0.9 * (len(intervals) - 1))]
    return min(MAX_WINDOW_S, max(MIN_WINDOW_S, math.ceil(MIN_SAMPLES * slow / 5) * 5 + 5))


def measure(
    querier: Querier,
    scope: Scope,
    window_s: float,
    at: float,
    gateways: tuple[GatewayHistogramConfig, ...] = (),
    pool: ThreadPoolExecutor | None = None,
) -> Measurements:
    """Ask everything once. A query that fails is named in `failed`; when coverage fails, nothing holds."""
    values = {
        "window": f"{window_s:.0f}s",
        "scope": catalogue.matcher("namespace", scope.namespaces),
        "exported": catalogue.matcher("exported_namespace", scope.namespaces),
        "probes": catalogue.alternatives(scope.probes),
    }
    asked = _Asker(pool)

    def vector(template: str) -> list[Sample]:
        return querier.vector(catalogue.fill(template, **values), at)

    coverage = asked.ask("coverage", lambda: querier.matrix(catalogue.fill(catalogue.COVERAGE, **values), at))
    rows = {q: asked.ask(q.field.value, _bind(vector, q.template)) for q in catalogue.TRITON_ROWS}
    quantiles = asked.ask("request_quantiles", _bind(vector, catalogue.REQUEST_QUANTILES))
    compute = asked.ask("compute_quantiles", _bind(vector, catalogue.COMPUTE_QUANTILES))
    pods = {f: asked.ask(f.value, _bind(vector, t)) for f, t in catalogue.POD_QUERIES.items()}
    gateway = asked.ask("gateways", lambda: _gateways(querier, gateways, scope, window_s, at))
    forwarded = asked.ask("forwarded", _bind(vector, catalogue.FORWARDED))
    answers = asked.ask("forward_answers", _bind(vector, catalogue.FORWARD_ANSWERS))
    seconds = asked.ask("forward_seconds", _bind(vector, catalogue.FORWARD_SECONDS))
    blocks = asked.ask("blocks", lambda: _blocks(querier, scope, values, at))
    misses = asked.ask("misses", lambda: _misses(querier, gateways, scope, at))

    series = coverage()
    if series is None:
        return Measurements(at, window_s, failure=asked.failed["coverage"], failed=asked.failed)
    return Measurements(
        at=at,
        window_s=window_s,
        failure=None,
        rows=_rows({q.field: answer() or [] for q, answer in rows.items()}),
        coverage=read_coverage(series, window_s, at),
        quantiles=_quantiles(quantiles() or []),
        compute_quantiles=_quantiles(compute() or []),
        pods=_pods({f: answer() or [] for f, answer in pods.items()}),
        gateways=tuple(gateway() or ()),
        forwarded=_forwarded(forwarded() or [], _by_size(answers() or []), _by_size(seconds() or [])),
        blocks=tuple(blocks() or ()),
        misses=tuple(misses() or ()),
        failed=asked.failed,
    )


class _Asker:
    """Runs queries side by side and keeps the errors by name."""

    def __init__(self, pool: ThreadPoolExecutor | None):
        self._pool = pool
        self.failed: dict[str, str] = {}

    def ask(self, name: str, query: Callable[[], _T]) -> Callable[[], _T | None]:
        """Begin a query; the returned function waits for its answer, None when it failed."""
        if self._pool is None:
            answer = self._run(name, query)
            return lambda: answer
        future = self._pool.submit(self._run, name, query)
        return future.result

    def _run(self, name: str, query: Callable[[], _T]) -> _T | None:
        try:
            return query()
        except PrometheusError as error:
            self.failed[name] = str(error)
            return None


def _bind(function: Callable[[str], list[Sample]], template: str) -> Callable[[], list[Sample]]:
    return lambda: function(template)


def usable(value: float) -> bool:
    """Finite and not negative."""
    return math.isfinite(value) and value >= 0


def _rows(answers: Mapping[Field, list[Sample]]) -> dict[RowKey, dict[Field, float]]:
    """Sum over versions, GPUs and failure reasons; one bad series makes its field unknown."""
    rows: dict[RowKey, dict[Field, float]] = defaultdict(dict)
    bad: set[tuple[RowKey, Field]] = set()
    for name, samples in answers.items():
        for sample in samples:
            key = _row_key(sample.labels)
            if key is None:
                continue
            signed = name is Field.PENDING_GROWTH
            if not (usable(sample.value) or (signed and math.isfinite(sample.value))):
                bad.add((key, name))
                continue
            rows[key][name] = rows[key].get(name, 0.0) + sample.value
    for key, name in bad:
        rows[key].pop(name, None)
    return dict(rows)


def _row_key(labels: Mapping[str, str]) -> RowKey | None:
    key = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("model", ""))
    return key if all(key) else None


def read_coverage(series: list[RawSeries], window_s: float, at: float) -> dict[PodKey, Coverage]:
    """Per pod, from its best covered series (HA pairs scrape the same pod twice)."""
    best: dict[PodKey, Coverage] = {}
    for one in series:
        key = (one.labels.get("namespace", ""), one.labels.get("pod", ""))
        if not all(key) or not one.samples:
            continue
        found = _cover([t for t, _ in one.samples], window_s, at)
        if key not in best or found.samples > best[key].samples:
            best[key] = found
    return best


def _cover(times: list[float], window_s: float, at: float) -> Coverage:
    if len(times) == 1:
        return Coverage(interval_s=0.0, window_s=0.0, age_s=at - times[0], samples=1)
    interval = median(b - a for a, b in pairwise(times))
    spanned = times[-1] - times[0]
    # What Prometheus's increase() extrapolates to: up to the window's ends when a sample is near, else
    # half an average interval beyond the samples (promql/functions.go, extrapolatedRate).
    average = spanned / (len(times) - 1)
    ends = (times[0] - (at - window_s), at - times[-1])
    reach = sum(end if end < 1.1 * average else average / 2 for end in ends)
    return Coverage(interval, window_s=spanned + reach, age_s=max(0.0, at - times[-1]), samples=len(times))


def _quantiles(samples: list[Sample]) -> dict[RowKey, dict[float, float]]:
    """Level → seconds, without NaN (no request within the server's 60 s)."""
    out: dict[RowKey, dict[float, float]] = defaultdict(dict)
    for sample in samples:
        key = _row_key(sample.labels)
        try:
            level = float(sample.labels.get("quantile", ""))
        except ValueError:
            continue
        if key is not None and usable(sample.value) and 0 < level < 1:
            out[key][level] = sample.value / 1e6
    return dict(out)


def _pods(answers: Mapping[PodField, list[Sample]]) -> dict[PodKey, dict[PodField, dict[str, float]]]:
    """Per pod and family: GPU (UUID, with the MIG instance's id) or container → value."""
    out: dict[PodKey, dict[PodField, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for name, samples in answers.items():
        for sample in samples:
            labels = sample.labels
            # A scrape without honor_labels renames the exporter's own labels; those mean the served pod.
            pod = labels.get("exported_pod") or labels.get("pod", "")
            namespace = labels.get("exported_namespace") or labels.get("namespace", "")
            part = labels.get("UUID") or labels.get("exported_container") or labels.get("container", "")
            if labels.get("GPU_I_ID"):
                part += f"/{labels['GPU_I_ID']}"
            if pod and namespace and usable(sample.value):
                out[namespace, pod][name][part] = sample.value
    return {key: dict(fields) for key, fields in out.items()}


BySize = Mapping[RowKey, Mapping[tuple[float, bool], float]]


def _by_size(samples: list[Sample]) -> BySize:
    found: dict[RowKey, dict[tuple[float, bool], float]] = defaultdict(dict)
    for sample in samples:
        key = _row_key(sample.labels)
        if key is not None and usable(sample.value):
            size = float(sample.labels.get("bytes", "inf"))
            found[key][size, sample.labels.get("found") == "idle"] = sample.value
    return found


def _forwarded(requests: list[Sample], answers: BySize, seconds: BySize) -> dict[RowKey, Forwarded]:
    answered: dict[RowKey, float] = defaultdict(float)
    local: dict[RowKey, float] = defaultdict(float)
    for sample in requests:
        key = _row_key(sample.labels)
        if key is not None and usable(sample.value):
            (local if sample.labels.get("result") == "local" else answered)[key] += sample.value
    found = {}
    for key in {*answered, *local}:
        took = seconds.get(key, {})
        sizes = {c: (n, took[c]) for c, n in answers.get(key, {}).items() if c in took}
        found[key] = Forwarded(answered[key], local[key], math.fsum(took.values()), sizes)
    return found


def _gateways(
    querier: Querier, configs: tuple[GatewayHistogramConfig, ...], scope: Scope, window_s: float, at: float
) -> list[Gateway]:
    windows = tuple(sorted({window_s, *scope.slo_windows_s}))
    return [g for config in configs for g in read_gateway(querier, config, windows, at)]


def _blocks(querier: Querier, scope: Scope, values: Mapping[str, str], at: float) -> list[RawSeries]:
    if not scope.block_pods or not scope.block_models:
        return []
    expression = catalogue.fill(
        catalogue.BLOCKS,
        scope=values["scope"],
        pods=catalogue.alternatives(scope.block_pods),
        models=catalogue.alternatives(scope.block_models),
        window=f"{scope.block_seconds:.0f}s",
    )
    return querier.matrix(expression, at)


def _misses(
    querier: Querier, configs: tuple[GatewayHistogramConfig, ...], scope: Scope, at: float
) -> list[tuple[GatewayHistogramConfig, list[RawSeries]]]:
    """Raw scrapes of the gateways that name the pod."""
    if not scope.targets_s:
        return []
    window = f"{scope.miss_seconds:.0f}s"
    return [
        (config, querier.matrix(catalogue.gateway_scrapes(config, scope.targets_s, window), at))
        for config in configs
        if config.pod_label
    ]
