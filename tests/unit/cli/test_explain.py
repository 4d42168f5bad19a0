from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from rich.console import RenderableType

from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import ConditionStatus, LeverStatus, ModelStatus, ObjectiveStatus
from slo_operator.cli.explain import explain, objective_line
from slo_operator.cli.history import history

Shown = Callable[[Sequence[RenderableType]], list[str]]
NOW = datetime(2026, 11, 30, 22, 10, 0, tzinfo=UTC)


@pytest.fixture
def story(assistant: InferenceSLO, shown: Shown) -> list[str]:
    return shown(explain(assistant, assistant.status.models, NOW))


def line(story: list[str], beginning: str) -> str:
    """The only line that begins so, blanks reduced to one."""
    (found,) = [text for text in (" ".join(text.split()) for text in story) if text.startswith(beginning)]
    return found


def test_the_head_says_who_how_and_how_large(story: list[str]) -> None:
    assert story[0] == "serving/assistant  mode Auto  2/2 replicas ready  4 GPUs"


def test_the_missed_model_is_explained_first(story: list[str]) -> None:
    assert story.index("assistant-small on chat") < story.index("assistant-large on chat")


def test_an_objective_reads_as_a_sentence_with_its_certainty_and_source(story: list[str]) -> None:
    start = next(number for number, text in enumerate(story) if "712ms of 300ms" in text)
    assert story[start].strip() == "latency.p99  712ms of 300ms  missed"
    assert story[start + 1].strip() == (
        "91.90% within the target (91.20%–92.60%), 6,012 requests, from request traces"
    )


def test_a_doubtful_verdict_says_that_it_is() -> None:
    doubtful = ObjectiveStatus(
        objective="latency.p99",
        target="300ms",
        observed="280ms",
        met=ConditionStatus.TRUE,
        reason="Undecided",
    )
    assert objective_line(doubtful).plain == "latency.p99  280ms of 300ms  met (Undecided)"


def test_what_cannot_be_measured_says_why() -> None:
    blind = ObjectiveStatus(
        objective="latency.p99", target="300ms", reason="NotMeasurable", message="only means are known"
    )
    assert objective_line(blind).plain == (
        "latency.p99  – of 300ms  unknown (NotMeasurable)\n  only means are known"
    )


def test_every_stage_has_a_bar_of_its_share(story: list[str]) -> None:
    # 40 cells are the whole: 60 % are 24 of them, 23 % are 9.2, drawn as nine and a quarter.
    assert line(story, "forward pass") == f"forward pass forward-small 120ms 60% {'█' * 24}"
    assert (
        line(story, "waiting for an instance") == f"waiting for an instance preprocessing 46ms 23% {'█' * 9}▎"
    )
    assert line(story, "unexplained") == "unexplained 2ms 1% ▍"


def test_time_outside_the_gpu_is_said_in_words(story: list[str]) -> None:
    assert (
        line(story, "591ms")
        == "591ms of the p99 are spent outside the GPU; the forward pass has a p99 of 121ms"
    )


def test_the_bottleneck_stands_above_its_numbers(story: list[str]) -> None:
    start = next(number for number, text in enumerate(story) if "bottleneck: PreprocessStarved" in text)
    assert "46ms on average for the one preprocessing process" in story[start + 1]


def test_levers_that_models_share_are_shown_once(story: list[str]) -> None:
    assert line(story, "▶") == (
        "▶ preprocess_instances Recommended the only process is busy 61% of the time (predicted 461ms)"
    )
    assert line(story, "– mig").startswith("– mig Ineligible the forward pass is steady")


def test_levers_that_differ_are_shown_with_their_models(assistant: InferenceSLO, shown: Shown) -> None:
    one, other = assistant.status.models
    other = other.model_copy(
        update={"levers": [LeverStatus(lever="batching", verdict="Exhausted", why="gave nothing")]}
    )
    story = shown(explain(assistant, [one, other], NOW))
    assert "  levers, cheapest first (assistant-large)" in story
    assert "  levers, cheapest first (assistant-small)" in story
    assert line(story, "✗") == "✗ batching Exhausted gave nothing"


def test_a_canary_in_flight_is_named_with_its_figures(story: list[str]) -> None:
    assert line(story, "change in flight") == (
        "change in flight: preprocess_instances, Analyse for 40s, on assistant-chat-7d9f-abcde"
    )
    assert line(story, "412 requests").endswith("misses 0.2% against 8.1%")


def test_settings_are_in_the_engines_terms(story: list[str]) -> None:
    assert line(story, "preprocessing 1 8") == "preprocessing 1 8 off – 1/2"
    assert line(story, "forward-small 2") == "forward-small 2 16 waits up to 5ms 4, 8 2/2"


def test_decisions_are_told_oldest_first(assistant: InferenceSLO, shown: Shown) -> None:
    _, first, second = shown(history(assistant.status.history, NOW))
    assert first.split()[:5] == ["2026-11-29", "21:58:00", "24h", "chat", "CanaryRestored"]
    assert second.split()[:4] == ["22:09:20", "40s", "chat", "CanaryStarted"]


def test_no_decision_is_said_and_not_an_empty_table(shown: Shown) -> None:
    assert shown(history([], NOW)) == ["No decision was taken yet: nothing was begun, ended or refused."]


def test_a_resource_that_was_never_observed_points_to_its_conditions(
    assistant: InferenceSLO, shown: Shown
) -> None:
    nothing: list[ModelStatus] = []
    assert "No model was observed yet; the conditions above say why." in shown(
        explain(assistant, nothing, NOW)
    )


def test_brackets_in_a_message_are_text_and_not_markup(assistant: InferenceSLO, shown: Shown) -> None:
    levers = [LeverStatus(lever="batching", verdict="Eligible", why="preferred sizes [4, 8] [bold]")]
    model = assistant.status.models[0].model_copy(update={"levers": levers})
    assert line(shown(explain(assistant, [model], NOW)), "○").endswith("preferred sizes [4, 8] [bold]")
