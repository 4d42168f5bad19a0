"""A run that never was, in the shape of a good one: for tests of the report, and for looking at it.

`python tests/unit/demo/synthetic.py DIR` writes its report.
"""

from __future__ import annotations

import functools
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.goals import figures, results
from demo.report_html import write_reports
from demo.run_data import Decision, Machine, Run, Sample, Stage, Window, WindowName
from devcluster.gateway.records import Record
from devcluster.gateway.schedule import ASSISTANT_MIX, Bursts, period

BEGIN = 1_800_000_000.0
AUTO, BATCHED, STEP, END = 200.0, 330.0, 560.0, 820.0


def records() -> tuple[Record, ...]:
    rng = random.Random(1)
    found: list[Record] = []
    for index in range(int(END / 20)):
        rate = 80 if index * 20 >= STEP else 40
        for arrival in period(index, rate_rps=rate, seed=1, mix=ASSISTANT_MIX, bursts=Bursts()):
            burst = 10 <= arrival.at_s % 20 < 17
            at = arrival.at_s
            spread = 210 if at < AUTO + 60 else 105 if at < BATCHED else 38
            latency = 165 + rng.expovariate(1 / (spread * (0.75 if burst else 0.4)))
            if STEP <= at < STEP + 30:
                latency *= 1.4
            due = BEGIN + at
            found.append(
                Record(len(found), "load", arrival.model, due, due, latency / 1000, 200, "10.0.0.4:8000")
            )
    return tuple(found)


def samples() -> tuple[Sample, ...]:
    found = []
    for at in range(10, int(END), 5):
        calm = 1 + 0.12 * math.sin(at / 3.2)
        waiting = (190 if at < AUTO + 60 else 70 if at < BATCHED else 9) * calm
        forward = 121.0 if at < BATCHED else 131.0
        stages = {
            Stage.PREPROCESS_WAIT: waiting,
            Stage.PREPROCESS: 30.0,
            Stage.FORWARD_WAIT: 4.0 if at < STEP else 14.0,
            Stage.FORWARD: forward,
            Stage.POSTPROCESS: 2.0,
            Stage.OTHER: 3.0,
        }
        found.append(
            Sample(
                time=BEGIN + at,
                phase="baseline",
                rate_rps=40,
                stages_ms=stages,
                forward_p50_ms={"small": 120.1, "base": 120.2, "large": 120.4},
                forward_p99_ms={"small": 121.0, "base": 121.5, "large": 122.0},
                gpu_busy=(0.3 if at < STEP else 0.46) * calm,
                gpus=4,
                cpu=0.9 if at < AUTO + 60 else 0.72,
                pool_replicas=0 if at < AUTO + 30 else 2,
                pool_network_ms=None if at < AUTO + 60 else 1.5,
                bottleneck="PreprocessStarved",
            )
        )
    return tuple(found)


def decisions() -> Sequence[Decision]:
    told = [
        (130, "ObserveOnly", "PreprocessStarved: 190 ms of 350 ms are spent waiting for preprocessing", None),
        (203, "PoolStarting", "2 replicas without GPUs for preprocessing", "preprocess_pool"),
        (222, "CanaryStarted", "preprocessing to the pool on assistant-chat-0", "preprocess_pool"),
        (262, "Promoting", "better: 0.4 % of 912 requests over 300 ms, peers 9.8 %", "preprocess_pool"),
        (274, "Promoted", "2/2 pods forward preprocessing", "preprocess_pool"),
        (296, "CanaryStarted", "dynamic batching on, delay 5 ms, for the forward models", "dynamic_batching"),
        (318, "CanaryExtended", "inconclusive: 388 of 500 requests", "dynamic_batching"),
        (333, "Promoting", "better: 0.2 % of 1,004 requests over 300 ms, peers 1.6 %", "dynamic_batching"),
        (341, "Promoted", "2/2 pods batch", "dynamic_batching"),
    ]
    return [Decision(BEGIN + at, reason, message, "chat", lever) for at, reason, message, lever in told]


@functools.cache
def run() -> Run:
    """A run in which all goals hold."""
    names = (WindowName.BASELINE, WindowName.TUNED, WindowName.DOUBLED)
    starts = (60.0, 420.0, 660.0)
    return Run(
        scenario="job1",
        started=BEGIN - 95,
        ended=BEGIN + END + 8,
        machine=Machine(2, 23.5, "6.1.0", {"baseline": 3.1, "tuned": 4.0, "doubled": 6.2}, {"baseline": 4.0}),
        records=records(),
        samples=samples(),
        windows={
            name: Window(BEGIN + start, BEGIN + start + 120, 3.1)
            for name, start in zip(names, starts, strict=True)
        },
        decisions=tuple(decisions()),
        bottlenecks=((BEGIN + 31, "None"), (BEGIN + 46, "PreprocessStarved")),
        auto_at=BEGIN + AUTO,
        step_at=BEGIN + STEP,
        settle_seconds=100.0,
    )


if __name__ == "__main__":
    made = run()
    found = figures(made)
    write_reports(made, found, results(found), "all goals hold", Path(sys.argv[1]))
