"""A metrics page is read for what it says, whatever else stands on it."""

from __future__ import annotations

import io
import math

from hypothesis import given
from hypothesis import strategies as st

from slo_operator.offline.exposition import read


def everything(_: str) -> bool:
    return True


def test_a_page_is_read_with_escapes_timestamps_and_labels_in_any_order() -> None:
    page = read(
        [
            "# TYPE x counter",
            'x{b="2",a="say \\"hi\\"\\\\\\n"} 1.5e3 1700000000000',
            "  y 7  ",
            "z{} +Inf",
            "w{ a = \"1\" , } NaN",
        ],
        everything,
    )  # fmt: skip
    assert page.samples["x", (("a", 'say "hi"\\\n'), ("b", "2"))] == 1500
    assert page.samples["y", ()] == 7
    assert math.isinf(page.samples["z", ()])
    assert math.isnan(page.samples["w", (("a", "1"),)])
    assert page.odd_lines == 0


def test_lines_that_are_no_samples_are_counted_and_the_first_ones_kept() -> None:
    page = read(["x 1", "E1201 12:00:01 server.cc:12] boom", 'x{a="1" 2', "x", *["?"] * 9], everything)
    assert page.samples == {("x", ()): 1.0}
    assert page.odd_lines == 12
    assert page.odd[0] == (2, "E1201 12:00:01 server.cc:12] boom")
    assert len(page.odd) == 5


def test_of_a_series_that_stands_twice_the_larger_value_counts() -> None:
    page = read(['x{a="1",b="2"} 3', 'x{b="2",a="1"} 5', "x 1"], everything)
    series = ("x", (("a", "1"), ("b", "2")))
    assert page.samples[series] == 5
    assert page.doubled == {series}


def test_only_what_is_wanted_is_kept() -> None:
    assert read(["x 1", "y 2"], lambda name: name == "y").samples == {("y", ()): 2.0}


@given(st.lists(st.text(max_size=200), max_size=30))
def test_no_text_makes_it_fail(parts: list[str]) -> None:
    """As a file gives its lines: each with its end, but for the last one."""
    lines = list(io.StringIO("\n".join(parts)))
    page = read(lines, everything)
    assert page.lines == len(lines)


@given(st.lists(st.text(alphabet='xyz{}="\\,. 01n\n', max_size=80), max_size=10))
def test_nor_does_text_that_is_nearly_a_sample(lines: list[str]) -> None:
    read(lines, everything)
