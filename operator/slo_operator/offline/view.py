"""What is asked of a diagnosis, and the tuner's picture of it: one server, without a cluster to ask about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slo_operator.observe.host import host_signals
from slo_operator.observe.measured import Field, Measurements
from slo_operator.observe.roles import with_gpu_users, with_roles
from slo_operator.observe.rows import compute_s, model_row
from slo_operator.observe.traffic import arrivals, histograms
from slo_operator.offline.pages import NAMESPACE, Remark
from slo_operator.offline.structure import clients_models, guessed, looks_like_ensemble, unknown
from slo_tuner.objectives import Objective
from slo_tuner.settings import PodSettings
from slo_tuner.signal import Signal, Unknown, Value
from slo_tuner.snapshot import ModelConfig, Pipeline, PodView, ServerView

#: how far levers may go where nobody declared limits: as in the resource's defaults
MAX_BATCH, MAX_DELAY_US, MAX_PROCESSES = 128, 10_000, 8


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `models`: configurations by name, None when there is no repository; `only`: this client-facing
    model; `gpus` of one server; `cpu_limits`: cores by pod."""

    measured: Measurements
    pods: Sequence[str]
    names: Sequence[str]
    warnings: Sequence[Remark] = ()
    models: Mapping[str, ModelConfig] | None = None
    objectives: Sequence[Objective] = ()
    only: str | None = None
    gpus: int = 1
    namespace: str = NAMESPACE
    cpu_limits: Mapping[str, float] = field(default_factory=dict)


def configurations(question: Question) -> tuple[dict[str, ModelConfig], list[Remark]]:
    """What is known of the models' configurations, and what is not."""
    measured = question.measured
    if question.models is not None:
        words = "{0} has counters, but no configuration in the repository: its settings are not known"
        missing = [name for name in question.names if name not in question.models]
        return dict(question.models), [Remark("NoConfiguration", words.format(m), m) for m in missing]
    # counts are compared: only servers on which every row can be believed
    guess = guessed(_rows(measured, {pod for _, pod, _ in measured.row_problems}))
    if not guess:
        return {}, [
            Remark("StructureUnknown", "which models form a pipeline is not known: give --repository")
        ]
    told = []
    for top, config in guess.items():
        if config.steps:
            members = " → ".join(step.model for step in config.steps)
            words = f"{top} is taken for an ensemble of {members}, by counts and names: give --repository"
            told.append(Remark("StructureInferred", words, top))
    return guess, told


def _rows(measured: Measurements, without: Collection[str] = ()) -> dict[str, dict[Field, float]]:
    """Rows by model, summed over the servers."""
    rows: dict[str, dict[Field, float]] = defaultdict(dict)
    for (_, pod, model), fields in measured.rows.items():
        for name, value in fields.items() if pod not in without else ():
            rows[model][name] = rows[model].get(name, 0.0) + value
    return rows


def server_view(question: Question, models: Mapping[str, ModelConfig]) -> ServerView:
    """The server as the loop would see it, as far as that is known; the pods are taken to be ready."""
    measured, namespace = question.measured, question.namespace
    served = {model for _, _, model in (*measured.rows, *measured.row_problems)}
    everything = {name: unknown(name) for name in question.names if name in served} | dict(models)
    names = [n for n in clients_models(everything) if n in served and question.only in (None, n)]
    times = compute_s(measured, namespace, question.pods)
    pipelines = tuple(
        with_roles(
            Pipeline(
                model=name,
                preprocess=(),
                forward=(),
                postprocess=(),
                objectives=tuple(question.objectives),
                max_batch_size=MAX_BATCH,
                max_queue_delay_us=MAX_DELAY_US,
                max_preprocess_instances=MAX_PROCESSES,
                window_s=measured.window_s,
            ),
            everything,
            times,
        )
        for name in names
    )
    if question.models is None:
        sums = _rows(measured)
        # what other models may have done for it is not called its forward pass
        pipelines = tuple(
            replace(p, forward=()) if p.forward == (p.model,) and looks_like_ensemble(p.model, sums) else p
            for p in pipelines
        )
    known = with_gpu_users(models, pipelines) if question.gpus else dict(models)
    settings = {name: config.settings for name, config in known.items()}
    pods = tuple(_pod(question, pod, settings) for pod in question.pods)
    rows = tuple(
        model_row(measured, namespace, pod, config, known, None)
        for pod in question.pods
        for config in everything.values()
        if config.name in served
    )
    return ServerView(
        namespace=namespace,
        resource="",
        name="",
        pool="",
        gpus_per_replica=question.gpus,
        min_replicas=len(pods),
        max_replicas=len(pods),
        desired_replicas=len(pods),
        managed=False,
        pods=pods,
        models=known,
        pipelines=pipelines,
        rows=rows,
        gateway=histograms(measured, namespace, pipelines),
        arrivals_rps={p.model: arrivals(p, measured, namespace, rows, known) for p in pipelines},
    )


def _pod(question: Question, pod: str, settings: PodSettings) -> PodView:
    host = host_signals(question.measured, (question.namespace, pod))
    cores = question.cpu_limits.get(pod)
    limit: Signal = (
        Unknown("no CPU limit is known of it") if cores is None else Value(cores, source="cAdvisor")
    )
    return PodView(
        pod,
        ready=True,
        terminating=False,
        started=0.0,
        gpus=question.gpus,
        settings=settings,
        gpu_busy=host.gpu_busy,
        gpu_memory_used_mib=host.gpu_memory_used_mib,
        gpu_memory_total_mib=host.gpu_memory_total_mib,
        cpu_used_cores=host.cpu_used_cores,
        cpu_limit_cores=limit,
        cpu_throttled_share=host.cpu_throttled_share,
    )
