from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType

from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import ConditionStatus, ObjectiveStatus
from slo_operator.cli.top import ratio, rows, table, worst

Shown = Callable[[Sequence[RenderableType]], list[str]]


def test_the_missed_model_comes_first(assistant: InferenceSLO) -> None:
    assert [(row.model, row.met) for row in rows([assistant])] == [
        ("assistant-small", "missed"),
        ("assistant-large", "met"),
    ]


def test_a_line_has_the_figures_of_the_status(assistant: InferenceSLO, shown: Shown) -> None:
    heading, small, large = shown([table(rows([assistant]))])
    assert heading.split()[:8] == [
        "RESOURCE",
        "MODEL",
        "MODE",
        "SLO",
        "OBSERVED",
        "TARGET",
        "WITHIN",
        "REQ/S",
    ]
    assert heading.split()[8:] == ["BOTTLENECK", "READY", "GPUS", "CHANGE"]
    assert small.split() == [
        "serving/assistant", "assistant-small", "Auto", "missed", "712ms", "p99", "300ms", "91.9%", "20.1",
        "PreprocessStarved", "2/2", "4", "preprocess_instances", "(Analyse)",
    ]  # fmt: skip
    assert large.split()[4:10] == ["290ms", "p99", "300ms", "99.3%", "–", "–"]


def test_the_objective_shown_is_the_missed_one_even_if_another_is_closer_to_its_target() -> None:
    met = ObjectiveStatus(objective="latency.p50", target="100ms", observed="99ms", met=ConditionStatus.TRUE)
    missed = ObjectiveStatus(
        objective="latency.p99", target="300ms", observed=None, met=ConditionStatus.FALSE
    )
    assert worst([met, missed]) is missed
    assert worst([]) is None


def test_the_ratio_of_what_was_not_observed_is_zero() -> None:
    assert ratio(ObjectiveStatus(objective="latency.p99", target="300ms", observed="150ms")) == 0.5
    assert ratio(ObjectiveStatus(objective="latency.p99", target="300ms")) == 0
    assert ratio(ObjectiveStatus(objective="latency.p99", target="0s", observed="1ms")) == 0
