"""`slo diagnose` as people run it: files in, an answer and an exit code out."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from slo_operator.cli.diagnose import InputError, objective
from slo_operator.cli.main import main
from slo_tuner.objectives import Objective
from tests.unit.offline.pages import nothing, text
from tests.unit.offline.test_diagnose import STARVED

QUANTILES = {"chat": {"0.5": 200e3, "0.9": 500e3, "0.99": 700e3}}
CONFIGS = {
    "preprocessing": 'backend: "python"\nmax_batch_size: 16\n',
    "forward": 'backend: "python"\nmax_batch_size: 16\ninstance_group [ { count: 4 kind: KIND_CPU } ]\n',
    "postprocessing": 'backend: "python"\nmax_batch_size: 16\n',
    "chat": """
platform: "ensemble"
max_batch_size: 16
ensemble_scheduling {
  step [
    { model_name: "preprocessing" input_map { key: "P" value: "PROMPT" } output_map { key: "I" value: "ids" } },
    { model_name: "forward" input_map { key: "I" value: "ids" } output_map { key: "O" value: "out" } },
    { model_name: "postprocessing" input_map { key: "O" value: "out" } output_map { key: "T" value: "TEXT" } }
  ]
}
""",
}


@pytest.fixture
def pages(tmp_path: Path) -> list[str]:
    """The options that name two good pages."""
    (tmp_path / "a.prom").write_text(text(nothing(STARVED)))
    (tmp_path / "b.prom").write_text(text(STARVED, QUANTILES))
    return ["--before", str(tmp_path / "a.prom"), "--after", str(tmp_path / "b.prom"), "--seconds", "60"]


@pytest.fixture
def repository(tmp_path: Path) -> str:
    for name, config in CONFIGS.items():
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    return str(tmp_path / "models")


def run(*arguments: str) -> int:
    return main(["diagnose", *arguments])


def test_the_table_says_where_the_time_goes_and_what_to_write(
    pages: list[str], repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*pages, "--repository", repository, "--slo", "latency.p99=300ms") == 1
    said = capsys.readouterr().out
    assert "20 requests/s, mean 262 ms, p99 700 ms" in said
    assert "latency.p99  700 ms of 300 ms  missed" in said
    assert "waiting for an instance  preprocessing   100 ms  38%  █" in said
    assert "bottleneck: PreprocessStarved" in said
    assert "preprocessing: instance_group [ { count: " in said


def test_the_table_shows_between_what_an_estimate_lies(
    pages: list[str], repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Path(repository, "forward", "config.pbtxt")
    config.write_text(config.read_text() + "dynamic_batching { max_queue_delay_microseconds: 5000 }\n")
    assert run(*pages, "--repository", repository) == 0
    lines = capsys.readouterr().out.splitlines()
    (waiting,) = [one for one in lines if "waiting for an instance" in one and " forward " in one]
    assert " ms  (5-10 ms)  " in waiting
    assert any(" ms  (0-5 ms)  " in one for one in lines)


def test_json_and_yaml_say_the_same(
    pages: list[str], repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*pages, "--repository", repository, "-o", "json") == 0, (
        "nothing is missed where nothing is asked"
    )
    first = json.loads(capsys.readouterr().out)
    assert run(*pages, "--repository", repository, "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out) == first
    assert [model["model"] for model in first["models"]] == ["chat"]


class Growing(http.server.BaseHTTPRequestHandler):
    """A server whose first page has nothing and whose second one has a minute's requests."""

    pages: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.pages.pop(0).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        pass


def test_a_running_server_is_asked_twice(capsys: pytest.CaptureFixture[str]) -> None:
    Growing.pages = [text(nothing(STARVED)), text(STARVED)]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Growing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        assert run("--url", url, "--window", "1s", "-o", "json") == 0
        server.shutdown()
    found = json.loads(capsys.readouterr().out)
    assert found["window_s"] == pytest.approx(1.0, abs=0.5)
    assert found["models"][0]["mean_latency_ms"] == 262


def test_one_model_may_be_asked_for(pages: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*pages, "--model", "chat", "-o", "json") == 0
    assert [m["model"] for m in json.loads(capsys.readouterr().out)["models"]] == ["chat"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ["--model", "chatt"],
            "--model chatt: the second page has preprocessing, forward, postprocessing, chat",
        ),
        (["--slo", "p99=300ms"], "--slo p99=300ms: the name is latency, ttft or itl, with .p50"),
        (["--slo", "latency.p99=300"], "the target is a time such as 300ms"),
        (["--slo", "latency.p99=0ms"], "the target is a time such as 300ms"),
        (["--repository", "/nowhere"], "--repository /nowhere: No such file or directory"),
        (
            ["--url", "http://127.0.0.1:1/metrics"],
            "--before and --after, --url, and --prometheus do not go together",
        ),
        (["--prometheus", "http://127.0.0.1:1"], "--before and --after, --url, and --prometheus do not go"),
        (["--namespace", "serving"], "--namespace goes with --prometheus only"),
        (["--at", "2026-01-31T10:00:00Z"], "--at goes with --prometheus only"),
        (["--config", "config.yaml"], "--config goes with --prometheus only"),
        (["--before", "/nowhere"], "2 --before and 1 --after: give them in pairs"),
        (["--before", "/nowhere", "--after", "/nowhere"], "/nowhere: No such file or directory"),
    ],
)
def test_bad_input_is_named_with_what_is_right(
    change: list[str], words: str, pages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*pages, *change) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "give two saved pages (--before, --after, --seconds), --url, or --prometheus"),
        (["--url", "http://127.0.0.1:1/metrics", "--seconds", "9"], "--seconds goes with saved pages"),
        (["--prometheus", "http://127.0.0.1:1"], "--namespace is missing"),
        (["--prometheus", "127.0.0.1:1", "-n", "x"], "an address such as http://HOST:9090 is needed"),
        (
            ["--prometheus", "http://127.0.0.1:1", "-n", "x", "--seconds", "9"],
            "--seconds goes with saved pages",
        ),
        (
            ["--prometheus", "http://127.0.0.1:1", "-n", "x", "--config", "/nowhere"],
            "--config /nowhere: cannot be read",
        ),
        (
            ["--prometheus", "http://127.0.0.1:1", "-n", "x"],
            "--prometheus: http://127.0.0.1:1/api/v1/query: ",
        ),
        (["--before", "a", "--after", "b"], "--seconds is missing"),
        (["--url", "file:///etc/passwd"], "an address such as http://HOST:8002/metrics is needed"),
        (["--url", "http://127.0.0.1:1/metrics"], "--url http://127.0.0.1:1/metrics: "),
    ],
)
def test_without_pages_there_is_one_clear_line(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*given) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "<html>404 not found</html>\n", "process_cpu_seconds_total 3\n"])
def test_a_page_without_triton_s_counters_is_no_input(
    content: str, tmp_path: Path, pages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.prom").write_text(content)
    assert run(*pages) == 2
    assert "a.prom: no nv_inference_… counters of Triton in it" in capsys.readouterr().err


def test_a_broken_configuration_is_a_warning_with_its_line(
    pages: list[str], repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(repository) / "forward" / "config.pbtxt").write_text("max_batch_size: ${size}\n")
    assert run(*pages, "--repository", repository, "-o", "json") == 0
    (chat,) = json.loads(capsys.readouterr().out)["models"]
    broken = next(one for one in chat["warnings"] if one["code"] == "BrokenConfiguration")
    assert "forward/config.pbtxt: line 1: " in broken["message"]


@pytest.mark.parametrize(
    ("given", "objective_"),
    [
        ("latency.p99=300ms", Objective("latency", 0.99, 0.3)),
        ("latency.mean=1.5s", Objective("latency", None, 1.5)),
        ("itl.p95=50ms", Objective("interTokenLatency", 0.95, 0.05)),
        ("timeToFirstToken.p50=800us", Objective("timeToFirstToken", 0.5, 0.0008)),
    ],
)
def test_an_objective_is_a_name_and_a_time(given: str, objective_: Objective) -> None:
    assert objective(given) == objective_


def test_an_objective_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"--slo cost\.p99=1ms"):
        objective("cost.p99=1ms")
