"""What Prometheus knows of the servers of a namespace: the same questions that the loop asks, and no cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe import catalogue
from slo_operator.observe.host import of_server
from slo_operator.observe.measure import FIRST_WINDOW_S, Scope, measure, next_window, read_coverage, usable
from slo_operator.observe.measured import COUNTERS, Field, Measurements, PodField
from slo_operator.observe.prometheus import PrometheusError, Querier, Sample
from slo_operator.offline.pages import Remark
from slo_operator.offline.view import Question

_FAMILY: Final = COUNTERS[Field.REQUESTS]
#: the models that pods publish now: series of pods that are gone have ended
_PRESENT: Final = f"max by (namespace, pod, model) ({_FAMILY}{{$scope}})"
_NAMESPACES: Final = f"count by (namespace) ({_FAMILY})"
#: cores that a container may use, as cAdvisor has it from the control group
_LIMIT: Final = (
    'max by (pod, container) (container_spec_cpu_quota{$scope, container!=""})'
    ' / max by (pod, container) (container_spec_cpu_period{$scope, container!=""})'
)


class NothingServedError(Exception):
    """No server in the namespace; the message says which namespaces have one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One namespace at a moment (Unix seconds); without a window the one that the loop would take."""

    namespace: str
    at: float
    window_s: float | None = None
    gateways: tuple[GatewayHistogramConfig, ...] = ()


def questions(querier: Querier, asked: Asked) -> list[Question]:
    """One question per server, its pods by name: pods with the same models are replicas of one server.

    Raises NothingServedError, and PrometheusError where Prometheus gives no usable answer.
    """
    scope = catalogue.matcher("namespace", (asked.namespace,))
    servers = _servers(querier.vector(catalogue.fill(_PRESENT, scope=scope), asked.at))
    if not servers:
        raise NothingServedError(_elsewhere(querier, asked))
    probes = tuple(sorted({models[0] for models in servers}))
    window_s = asked.window_s or _window(querier, asked, scope, probes)
    measured = measure(
        querier,
        Scope(namespaces=(asked.namespace,), probes=probes),
        window_s,
        asked.at,
        asked.gateways,
    )
    if measured.failure:
        raise PrometheusError(measured.failure)
    limits = _limits(querier, scope, asked.at)
    return [
        Question(
            measured,
            pods,
            models,
            warnings=tuple(_remarks(measured, asked.namespace, pods)),
            namespace=asked.namespace,
            gpus=_gpus(measured, asked.namespace, pods),
            cpu_limits={pod: limits[pod] for pod in pods if pod in limits},
        )
        for models, pods in servers.items()
    ]


def _servers(present: Sequence[Sample]) -> dict[tuple[str, ...], list[str]]:
    models: dict[str, set[str]] = defaultdict(set)
    for sample in present:
        pod, model = sample.labels.get("pod", ""), sample.labels.get("model", "")
        if pod and model:
            models[pod].add(model)
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for pod in sorted(models):
        found[tuple(sorted(models[pod]))].append(pod)
    return dict(found)


def _elsewhere(querier: Querier, asked: Asked) -> str:
    counted = querier.vector(_NAMESPACES, asked.at)
    others = sorted(filter(None, (sample.labels.get("namespace", "") for sample in counted)))
    if others:
        return f"no pod in namespace {asked.namespace} has {_FAMILY}; those in {', '.join(others)} have"
    return f"{_FAMILY} has no series with a namespace: is Triton scraped, its series labelled with namespace and pod?"


def _window(querier: Querier, asked: Asked, scope: str, probes: tuple[str, ...]) -> float:
    """As the loop takes it: by the scrape interval."""
    expression = catalogue.fill(
        catalogue.COVERAGE,
        scope=scope,
        probes=catalogue.alternatives(probes),
        window=f"{FIRST_WINDOW_S:.0f}s",
    )
    return next_window(read_coverage(querier.matrix(expression, asked.at), FIRST_WINDOW_S, asked.at).values())


def _limits(querier: Querier, scope: str, at: float) -> dict[str, float]:
    """Cores by pod: of the serving container where one has its name, else of all of the pod's."""
    try:
        samples = querier.vector(catalogue.fill(_LIMIT, scope=scope), at)
    except PrometheusError:
        return {}  # evidence that may be missing
    cores: dict[str, dict[str, float]] = defaultdict(dict)
    for sample in samples:
        if usable(sample.value) and sample.value > 0:
            cores[sample.labels.get("pod", "")][sample.labels.get("container", "")] = sample.value
    return {pod: of_server(found) for pod, found in cores.items()}


def _gpus(measured: Measurements, namespace: str, pods: Sequence[str]) -> int:
    """GPUs of one pod, as their exporter attributes them; where it attributes none, one is assumed."""
    fields = (measured.pods.get((namespace, pod), {}) for pod in pods)
    return max((len(found.get(PodField.GPU_BUSY, {})) for found in fields), default=0) or 1


def _remarks(measured: Measurements, namespace: str, pods: Sequence[str]) -> list[Remark]:
    found = []
    for pod in pods:
        cover = measured.coverage.get((namespace, pod))
        if cover is None or cover.problem:
            why = cover.problem if cover else "no scrapes within the window"
            found.append(Remark("PodNotCovered", f"pod {pod}: {why}"))
    return found
