from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slo_operator.cli.main import main


def test_a_missed_objective_is_exit_code_1(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-f", str(sample)]) == 1
    assert main(["top", "-f", str(sample)]) == 1
    assert "assistant-small" in capsys.readouterr().out


def test_a_model_that_meets_its_objective_is_exit_code_0(sample: Path) -> None:
    assert main(["explain", "serving/assistant", "--model", "assistant-large", "-f", str(sample)]) == 0


def test_json_has_the_status_as_it_is(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "-f", str(sample), "-o", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["models"][1]["breakdown"]["outsideGPU"] == "591ms"
    assert answer["lastDecision"]["reason"] == "CanaryStarted"


def test_yaml_and_json_say_the_same(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["top", "-f", str(sample), "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main(["top", "-f", str(sample), "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_history_is_oldest_first_and_limited_to_the_latest(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "-f", str(sample), "-o", "json"]) == 0
    assert [d["reason"] for d in json.loads(capsys.readouterr().out)] == ["CanaryRestored", "CanaryStarted"]
    main(["history", "-f", str(sample), "-o", "json", "--limit", "1"])
    assert [d["reason"] for d in json.loads(capsys.readouterr().out)] == ["CanaryStarted"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain"], "name a resource"),
        (["explain", "a/b/c"], "write NAME or NAMESPACE/NAME"),
        (["explain", "/b"], "write NAME or NAMESPACE/NAME"),
        (["explain", "serving/assistant", "-n", "other"], "another namespace than --namespace other"),
        (["top", "assistant", "-A"], "--all-namespaces lists resources"),
        (["top", "-f", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (["explain", "other", "-f", "{sample}"], "has no other; it has serving/assistant"),
        (
            ["explain", "-f", "{sample}", "-m", "gpt"],
            "no model 'gpt' in its status; it declares assistant-small",
        ),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line_that_says_what_would_be_right(
    arguments: list[str], said: str, sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([text.format(sample=sample) for text in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("slo: ")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["top", "--watch", "0"], ["history", "a", "--limit", "none"], ["nonsense"]]
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_broken_file_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    assert main(["top", "-f", str(broken)]) == 2
    assert "is neither YAML nor JSON" in capsys.readouterr().err


def test_no_cluster_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--kubeconfig", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.startswith("slo: kubeconfig: ")


def test_a_cluster_that_does_not_answer_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    content = {
        "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "u", "user": {}}],
        "contexts": [context], "current-context": "x",
    }  # fmt: skip
    kubeconfig.write_text(yaml.safe_dump(content))
    assert main(["top", "--kubeconfig", str(kubeconfig)]) == 2
    error = capsys.readouterr().err
    assert "the Kubernetes API does not answer" in error
    assert "refused" in error


def test_help_loads_none_of_the_slow_libraries() -> None:
    program = (
        "import sys\nfrom slo_operator.cli.main import build_parser\nbuild_parser().format_help()\n"
        "slow = {'kubernetes', 'kopf', 'pydantic', 'rich', 'yaml', 'grpc', 'tritonclient'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(slow)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
