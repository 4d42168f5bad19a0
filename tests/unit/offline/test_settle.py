"""What the diagnosis asks for is what it lacks, and nothing more."""

from __future__ import annotations

from slo_operator.offline.settle import would_settle
from slo_tuner.decision import Breakdown, StageShare
from slo_tuner.signal import Unknown, Value
from slo_tuner.snapshot import ModelRow, Pipeline, PodView, ServerView

NONE = Unknown("not asked")
PIPELINE = Pipeline("chat", ("pre",), ("forward",), ("post",), (), 8, 0, 8)


def view(cpu: bool = False, gpu: bool = False, p99: bool = True) -> ServerView:
    pod = PodView(
        "pod-1",
        ready=True,
        terminating=False,
        started=0.0,
        gpus=1,
        gpu_busy={"GPU-1": Value(0.5)} if gpu else {},
        cpu_used_cores=Value(1.0) if cpu else NONE,
    )
    quantiles = {0.99: 0.7} if p99 else {}
    one = Value(1.0)
    row = ModelRow("pod-1", "chat", 60.0, one, one, one, one, one, one, one, one, one, quantiles=quantiles)
    return ServerView(
        "", "", "", "", 1, 1, 1, 1, managed=False, pods=(pod,), models={}, pipelines=(PIPELINE,), rows=(row,)
    )


def breakdown(pre: float = 0.0, forward: float = 0.0, rest: float = 0.0) -> Breakdown:
    stages = (
        StageShare("busy_wait", "pre", pre, pre),
        StageShare("busy_wait", "forward", forward, forward),
        StageShare("unexplained", "chat", rest, rest),
    )
    return Breakdown("chat", Value(1.0), 1.0, stages)


def asked(found: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in found]


def test_nothing_is_asked_for_where_nothing_is_open() -> None:
    assert would_settle(view(), PIPELINE, breakdown(0.1, 0.1, 0.1), known=True) == []
    assert would_settle(view(cpu=True, gpu=True), PIPELINE, breakdown(0.4, 0.4), known=True) == []


def test_a_long_queue_asks_for_the_processor_it_waits_for() -> None:
    cpu, gpu = "too few processes or no CPU left", "room for more instances or a full GPU"
    assert asked(would_settle(view(), PIPELINE, breakdown(pre=0.2), known=True)) == [cpu]
    assert asked(would_settle(view(), PIPELINE, breakdown(forward=0.2), known=True)) == [gpu]
    assert asked(would_settle(view(cpu=True), PIPELINE, breakdown(0.2, 0.2), known=True)) == [gpu]


def test_configurations_the_p99_and_what_is_unexplained_are_asked_for() -> None:
    found = asked(would_settle(view(p99=False), PIPELINE, breakdown(rest=0.5), known=False))
    assert found == ["how waiting splits, and which lever helps", "the p99", "the unexplained part"]
    assert asked(would_settle(view(p99=False), PIPELINE, None, known=True)) == ["the p99"]
