"""Pages as servers in trouble, proxies and full disks leave them: large, cut off, mixed up, or none at all."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slo_operator.cli.main import main
from tests.unit.offline.pages import nothing, row, text

pytestmark = [pytest.mark.accuracy, pytest.mark.timeout(900)]

ROWS = {
    "chat": row(1200, 0, 150, latency_ms=262),
    "preprocessing": row(1200, 100, 28),
    "forward": row(1200, 10, 120),
    "postprocessing": row(1200, 0, 2),
}
QUANTILES = {"chat": {"0.5": 200e3, "0.99": 700e3}}
#: series of Triton's, and bytes of the page
SERIES, BYTES = 100_000, 50_000_000


def diagnosed(folder: Path, before: bytes, after: bytes) -> tuple[int, dict[str, Any] | None, str]:
    """Exit code, the JSON, and what was said on the error stream."""
    files = folder / "a.prom", folder / "b.prom"
    for file, content in zip(files, (before, after), strict=True):
        file.write_bytes(content)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        options = ["--before", str(files[0]), "--after", str(files[1]), "--seconds", "60", "-o", "json"]
        code = main(["diagnose", *options])
    return code, json.loads(out.getvalue()) if out.getvalue() else None, err.getvalue()


def large_page(models: int, filler: int, requests: int) -> Iterator[str]:
    """Rows of so many models, and as many bytes of other programs' families around them."""
    yield text({f"model-{n}": row(requests, 1, 10) for n in range(models)})
    line = 'http_request_duration_seconds_bucket{{path="/some/path/of/a/neighbour",le="{0}"}} {0}\n'
    written = 0
    while written < filler:
        block = "".join(line.format(written + n) for n in range(500))
        written += len(block)
        yield block


def test_a_page_of_fifty_megabytes_with_a_hundred_thousand_series_is_diagnosed(tmp_path: Path) -> None:
    models = SERIES // 9
    first, second = ("".join(large_page(models, BYTES, n)).encode() for n in (0, 100))
    assert len(second) > BYTES
    code, found, _ = diagnosed(tmp_path, first, second)
    assert code == 0
    assert found is not None
    assert len(found["models"]) == models
    assert {one["mean_latency_ms"] for one in found["models"]} == {11.0}


def test_a_page_that_ends_anywhere_gives_what_it_holds_or_says_that_it_holds_nothing(tmp_path: Path) -> None:
    whole = text(ROWS, QUANTILES).encode()
    before = text(nothing(ROWS)).encode()
    for end in range(0, len(whole), 7):
        code, found, said = diagnosed(tmp_path, before, whole[:end])
        if code == 2:
            assert found is None
            assert said.count("\n") == 1, "one line"
            assert "b.prom" in said
        else:
            assert found is not None
            chats = [model for model in found["models"] if model["model"] == "chat"]
            for chat in chats:
                assert chat["rate_rps"] in (None, 20.0)
                assert chat["mean_latency_ms"] in (None, 262.0)
                assert chat["p99"]["ms"] in (None, 700.0)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_page(seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    code, found, said = diagnosed(tmp_path, r.randbytes(5_000), r.randbytes(50_000))
    assert (code, found) == (2, None)
    assert said.count("\n") == 1


@pytest.mark.parametrize("seed", range(60))
def test_lines_of_a_log_in_between_cost_nothing_but_themselves(seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    lines = text(ROWS, QUANTILES).splitlines(keepends=True)
    for _ in range(10):
        lines.insert(r.randrange(len(lines)), f"W{r.randrange(10_000):04} server.cc:1] {r.randbytes(20)!r}\n")
    code, found, _ = diagnosed(tmp_path, text(nothing(ROWS)).encode(), "".join(lines).encode())
    assert code == 0
    assert found is not None
    (chat,) = (one for one in found["models"] if one["model"] == "chat")
    assert (chat["rate_rps"], chat["mean_latency_ms"], chat["p99"]["ms"]) == (20.0, 262.0, 700.0)
    assert "OddLines" in {warning["code"] for warning in chat["warnings"]}
