"""What a diagnosis from two saved pages costs, and how a command starts."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator

from benchmarks.figure import Figure
from slo_operator.offline.diagnose import diagnose
from slo_operator.offline.exposition import read
from slo_operator.offline.pages import Pair, measurements, models_of, wanted
from slo_operator.offline.view import Question

SUBJECT = "diagnosis"
SIZES = (1_000, 10_000, 100_000)
_FAMILIES = (
    "request_success", "count", "exec_count", "request_duration_us", "queue_duration_us",
    "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us",
)  # fmt: skip


def page(series: int, requests: int) -> list[str]:
    """A page of that many series, of models with eight counters each."""
    return [
        f'nv_inference_{family}{{model="model-{n // len(_FAMILIES)}",version="1"}} {requests * (1 + n % 7)}'
        for n in range(series)
        for family in (_FAMILIES[n % len(_FAMILIES)],)
    ]


def once(series: int) -> None:
    """Two pages read, compared and diagnosed."""
    pair = Pair("pod", read(page(series, 0), wanted), read(page(series, 100), wanted))
    measured, remarks = measurements([pair], 60.0)
    diagnose(Question(measured, ["pod"], models_of([pair]), remarks))


def figures() -> Iterator[Figure]:
    for series in SIZES:
        began = time.perf_counter()
        once(series)
        seconds = time.perf_counter() - began
        yield Figure(SUBJECT, f"two pages of {series:,} series", seconds, "s", "read, compared and diagnosed")
    used = []
    for series in SIZES[:2]:
        tracemalloc.start()
        once(series)
        used.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ratio = used[1] / used[0] / (SIZES[1] / SIZES[0])
    yield Figure(SUBJECT, "memory ÷ series", ratio, "×", "of ten times as many series; 1 is linear")
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "slo_operator.cli.main", "--help"], check=True, capture_output=True)
    yield Figure(SUBJECT, "slo --help", time.perf_counter() - began, "s", "a process from start to end")
