"""What was not to be had and would settle a question that the diagnosis leaves open."""

from __future__ import annotations

from collections.abc import Sequence

from slo_tuner.decision import Breakdown
from slo_tuner.signal import Signal, Value
from slo_tuner.snapshot import Pipeline, ServerView

#: below this share of the mean nobody asks where it comes from
ASKED_SHARE = 0.15


def would_settle(view: ServerView, pipeline: Pipeline, breakdown: Breakdown | None, known: bool) -> list[str]:
    """One line each: the question, and what answers it. Empty where nothing is open."""
    found = []
    if not known:
        found.append("how waiting splits, and which lever helps: the models' configurations (--repository)")
    if not any(0.99 in row.quantiles for row in view.rows_of(pipeline.model)):
        found.append(
            "the p99: Triton's own summary (--metrics-config summary_latencies=true), or a gateway's histogram"
        )
    if breakdown is None:
        return found
    if _share(breakdown, "busy_wait", pipeline.preprocess + pipeline.postprocess) >= ASKED_SHARE and not _all(
        [pod.cpu_used_cores for pod in view.pods]
    ):
        found.append(
            "too few processes or no CPU left: the containers' CPU and throttling (--prometheus, with the kubelet's "
            "cAdvisor scraped)"
        )
    if _share(breakdown, "busy_wait", pipeline.forward) >= ASKED_SHARE and not all(
        pod.gpu_busy and _all(list(pod.gpu_busy.values())) for pod in view.pods
    ):
        found.append(
            "room for more instances or a full GPU: how busy it is (--prometheus, with NVIDIA's exporter scraped)"
        )
    if _share(breakdown, "unexplained", (pipeline.model,)) >= ASKED_SHARE:
        found.append("the unexplained part: request traces of the server, or the client's own times")
    return found


def _share(breakdown: Breakdown, kind: str, models: Sequence[str]) -> float:
    return sum(one.share for one in breakdown.stages if one.kind == kind and one.model in models)


def _all(signals: Sequence[Signal]) -> bool:
    return all(isinstance(signal, Value) for signal in signals)
