"""Metrics pages in a few lines."""

from __future__ import annotations

from collections.abc import Mapping

from slo_operator.offline.exposition import Page, read
from slo_operator.offline.pages import wanted

FAMILIES = {
    "requests": "nv_inference_request_success",
    "failures": "nv_inference_request_failure",
    "items": "nv_inference_count",
    "executions": "nv_inference_exec_count",
    "latency": "nv_inference_request_duration_us",
    "queue": "nv_inference_queue_duration_us",
    "input": "nv_inference_compute_input_duration_us",
    "infer": "nv_inference_compute_infer_duration_us",
    "output": "nv_inference_compute_output_duration_us",
    "summary_count": "nv_inference_request_summary_us_count",
    "pending": "nv_inference_pending_request_count",
}
Rows = Mapping[str, Mapping[str, float]]


def text(rows: Rows, quantiles: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """A page: model → what → value in the family's own unit; `quantiles`: model → level → µs."""
    lines = []
    for model, fields in rows.items():
        for what, value in fields.items():
            extra = ',reason="OTHER"' if what == "failures" else ""
            lines.append(f'{FAMILIES[what]}{{model="{model}",version="1"{extra}}} {value}')
    for model, levels in (quantiles or {}).items():
        for level, value in levels.items():
            labels = f'model="{model}",version="1",quantile="{level}"'
            lines.append(f"nv_inference_request_summary_us{{{labels}}} {value}")
    return "\n".join(("# HELP nv_inference_count items", *lines, ""))


def page(rows: Rows, quantiles: Mapping[str, Mapping[str, float]] | None = None) -> Page:
    return read(text(rows, quantiles).splitlines(), wanted)


def row(n: float, queue_ms: float, compute_ms: float, latency_ms: float | None = None) -> dict[str, float]:
    """`n` requests with these means."""
    latency = queue_ms + compute_ms if latency_ms is None else latency_ms
    return {
        "requests": n,
        "items": n,
        "executions": n,
        "latency": 1e3 * n * latency,
        "queue": 1e3 * n * queue_ms,
        "input": 0.0,
        "infer": 1e3 * n * compute_ms,
        "output": 0.0,
        "pending": 0.0,
    }


def nothing(rows: Rows) -> Rows:
    """The same series, before anything was asked."""
    return {model: dict.fromkeys(fields, 0.0) for model, fields in rows.items()}
