"""Whatever the pages say: no crash, no number that they do not carry, and the stages' times where they do."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slo_operator.offline.diagnose import diagnose
from slo_operator.offline.exposition import read
from slo_operator.offline.pages import Pair, measurements, models_of, wanted
from slo_operator.offline.view import Question
from slo_tuner.objectives import Objective
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.snapshot import EnsembleStep, ModelConfig
from tests.unit.offline.pages import FAMILIES, Rows, nothing, page, row, text

STAGES = ("preprocessing", "forward", "postprocessing")
KINDS = ("preprocess", "forward", "postprocess")
P99 = Objective("latency", 0.99, 0.3)
times_ms = st.floats(0.5, 500.0)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Rows, dict[str, ModelConfig], dict[str, tuple[float, float]], float]:
    """Rows of an ensemble of three stages on one pod, their configurations, (queue, compute) by stage in ms, and the
    mean of a request."""
    requests = float(draw(st.integers(200, 5000)))
    means = {stage: (draw(st.just(0.0) | times_ms), draw(times_ms)) for stage in STAGES}
    # the forward pass is the one with the most compute, as it is told from the others
    longest = max(compute for _, compute in means.values())
    means["forward"] = (means["forward"][0], longest * 1.01)
    beyond = draw(st.floats(0.0, 50.0))
    whole = sum(queue + compute for queue, compute in means.values()) + beyond
    rows = {stage: row(requests, *means[stage]) for stage in STAGES}
    rows["chat"] = row(requests, 0.0, sum(compute for _, compute in means.values()), latency_ms=whole)
    # instances enough for the work: what a machine could not have done is not believed
    count = math.ceil(requests * longest / 1e3 / 60.0) + 1
    delay = draw(st.none() | st.builds(Batching, st.integers(0, 20_000)))
    models = {stage: ModelConfig(stage, ModelSettings(count, 8, delay)) for stage in STAGES}
    steps = tuple(EnsembleStep(s, (f"t{n}",), (f"t{n + 1}",)) for n, s in enumerate(STAGES))
    models["chat"] = ModelConfig("chat", ModelSettings(1, 8), steps=steps)
    return rows, models, means, whole


def asked(pairs: list[Pair], models: dict[str, ModelConfig] | None, seconds: float = 60.0) -> dict[str, Any]:
    measured, remarks = measurements(pairs, seconds)
    names = models_of(pairs)
    found = diagnose(Question(measured, [p.pod for p in pairs], names, remarks, models, (P99,)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found, "JSON carries all of it, and no NaN"
    return found


def chat_of(found: dict[str, Any]) -> dict[str, Any]:
    model: dict[str, Any] = next(model for model in found["models"] if model["model"] == "chat")
    return model


@given(pipelines(), st.integers(1, 3), st.booleans())
@settings(max_examples=150)
def test_every_stage_gets_its_time_within_5_points_of_the_mean(
    pipeline: tuple[Rows, dict[str, ModelConfig], dict[str, tuple[float, float]], float],
    pods: int,
    known: bool,
) -> None:
    rows, models, means, whole = pipeline
    pairs = [Pair(f"pod-{n}", page(nothing(rows)), page(rows)) for n in range(pods)]
    chat = chat_of(asked(pairs, models if known else None))
    if any(warning["code"] == "StructureUnknown" for warning in chat["warnings"]):
        assert not known
        # times that suit several structures: then nothing is called any stage's
        assert {one["stage"] for one in chat["breakdown"]} <= {"queue", "other", "unexplained"}
        return
    found: dict[tuple[str, str], float] = {}
    for one in chat["breakdown"]:
        kind = "wait" if one["stage"] in ("queue", "busy_wait", "batching_delay") else one["stage"]
        found[kind, one["model"]] = found.get((kind, one["model"]), 0.0) + one["share"]
    for stage, kind in zip(STAGES, KINDS, strict=True):
        queue, compute = means[stage]
        assert abs(found.get(("wait", stage), 0.0) - queue / whole) < 0.05
        assert abs(found.get((kind, stage), 0.0) - compute / whole) < 0.05
    assert abs(sum(one["share"] for one in chat["breakdown"]) - 1.0) < 1e-3
    assert abs(chat["mean_latency_ms"] / whole - 1.0) < 1e-3


@given(
    pipelines(),
    st.lists(st.tuples(st.sampled_from((*STAGES, "chat")), st.sampled_from(sorted(FAMILIES))), max_size=6),
    st.lists(st.tuples(st.sampled_from((*STAGES, "chat")), st.sampled_from(sorted(FAMILIES))), max_size=3),
)
@settings(max_examples=150)
def test_missing_families_and_resets_never_make_a_number_up(
    pipeline: tuple[Rows, dict[str, ModelConfig], dict[str, tuple[float, float]], float],
    missing: list[tuple[str, str]],
    reset: list[tuple[str, str]],
) -> None:
    rows, models, _, whole = pipeline
    after = {m: {k: v for k, v in fields.items() if (m, k) not in missing} for m, fields in rows.items()}
    before = {
        m: {k: v + 1e9 if (m, k) in reset else 0.0 for k, v in fields.items()} for m, fields in after.items()
    }
    if not any(after.values()):
        return
    for configurations in (models, None):
        for model in asked([Pair("pod-0", page(before), page(after))], configurations)["models"]:
            if model["mean_latency_ms"] is None:
                assert model["breakdown"] == []
                continue
            total = sum(one["ms"] for one in model["breakdown"])
            assert abs(total / model["mean_latency_ms"] - 1.0) < 1e-2
            if model["model"] == "chat":
                assert abs(model["mean_latency_ms"] / whole - 1.0) < 1e-3, "known means right"


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.text(alphabet='0123456789.eE+-NaIf"{}\n ', max_size=6)), max_size=8
    )
)
@settings(max_examples=150)
def test_damaged_pages_are_diagnosed_or_unknown(damage: list[tuple[int, str]]) -> None:
    rows = {s: row(1200, 10, 30) for s in STAGES} | {"chat": row(1200, 0, 90, latency_ms=120)}
    whole = text(rows, {"chat": {"0.5": 1e5, "0.99": 2e5}})
    for at, what in damage:
        whole = whole[: at % len(whole)] + what + whole[at % len(whole) + len(what) :]
    second = read(whole.splitlines(), wanted)
    if second.samples:
        asked([Pair("pod-0", page(nothing(rows)), second)], None)


def test_ten_thousand_series_are_a_matter_of_a_moment_and_a_page_cut_off_in_mid_line_is_one() -> None:
    rows = {f"model-{n}": row(100, 1, 10) for n in range(1100)}
    pairs = [Pair("pod-0", page(nothing(rows)), page(rows))]
    assert len(pairs[0].after.samples) == 9900
    assert len(asked(pairs, None)["models"]) == 1100
    cut = text(rows)[:-7]
    assert read(cut.splitlines(), wanted).odd_lines <= 1
