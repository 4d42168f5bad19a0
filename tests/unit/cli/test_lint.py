"""`slo lint` as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slo_operator.cli.main import main


def model(folder: Path, text: str) -> str:
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "config.pbtxt").write_text(text)
    return str(folder)


def test_a_sound_repository_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", model(tmp_path, "max_batch_size: 8\n")]) == 0
    assert capsys.readouterr().out == "nothing found\n"


def test_an_error_is_told_like_a_compiler_s_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 16 ] }\n"
    assert main(["lint", model(tmp_path, text)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"{tmp_path}/m/config.pbtxt:2: error: preferred sizes [16] are above max_batch_size 8"
    )
    assert first.endswith("[preferred-above-max]")
    assert second == "    preferred_batch_size: [ 8 ]"
    assert last == "1 errors, 0 warnings"


def test_warnings_alone_end_with_0_and_json_has_every_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 100000 }\n"
    assert main(["lint", model(tmp_path, text), "--slo", "latency.p99=300ms", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert set(found) == {"file", "line", "field", "severity", "code", "message", "suggestion"}
    assert (found["line"], found["severity"], found["code"]) == (2, "warning", "delay-eats-target")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere"], "/nowhere: No such file or directory"),
        (["."], "no config.pbtxt in it or in a folder of it"),
        ([".", "--slo", "p99=1ms"], "--slo p99=1ms: the name is latency"),
    ],
)
def test_bad_input_ends_with_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["lint", *arguments]) == 2
    assert words in capsys.readouterr().err
