"""What a pod does before its server starts: links and copies, then tuned settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slo_operator.overlay import main, merge
from slo_operator.render.model_config import from_text, settings_of
from slo_operator.render.pod import OVERLAY_SCRIPT
from slo_operator.render.remote import ENTRY_FILE
from slo_operator.render.tuned import settings_to_json
from slo_tuner.settings import Batching, ModelSettings, Remote

MEMBER = (
    'name: "{name}"\nbackend: "python"\nmax_batch_size: 16\ninstance_group [{{ count: 1 kind: KIND_CPU }}]\n'
)
ENSEMBLE = (
    'name: "pipe"\nplatform: "ensemble"\nmax_batch_size: 16\n'
    'ensemble_scheduling { step [{ model_name: "pre" model_version: -1 }] }\n'
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "models"
    for name in ("pre", "fwd"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text("weights")
        (root / name / "config.pbtxt").write_text(MEMBER.format(name=name))
    (root / "pipe" / "1").mkdir(parents=True)
    (root / "pipe" / "config.pbtxt").write_text(ENSEMBLE)
    (root / "pre" / "labels.txt").write_text("a\n")
    return root


def lay(repository: Path, target: Path) -> subprocess.CompletedProcess[str]:
    target.mkdir(exist_ok=True)
    script = OVERLAY_SCRIPT.replace("/overlay/", f"{target}/")
    return subprocess.run(
        ["sh", "-c", script, "overlay", str(repository)], text=True, capture_output=True, check=False
    )


@pytest.fixture
def overlay(repository: Path, tmp_path: Path) -> Path:
    target = tmp_path / "overlay"
    assert lay(repository, target).returncode == 0
    return target


def tuned(tmp_path: Path, **settings: ModelSettings) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(settings_to_json(settings))
    return path


def test_configurations_are_copied_and_everything_else_is_linked(overlay: Path, repository: Path) -> None:
    assert sorted(p.name for p in overlay.iterdir()) == ["fwd", "pipe", "pre"]
    assert not (overlay / "pre" / "config.pbtxt").is_symlink()
    assert not (overlay / "pre" / "1").is_symlink(), "files can be added beside the code"
    assert (overlay / "pre" / "1" / "model.py").is_symlink()
    assert (overlay / "pre" / "1" / "model.py").read_text() == "weights"
    assert list((overlay / "pipe" / "1").iterdir()) == []
    assert (overlay / "pre" / "labels.txt").resolve() == (repository / "pre" / "labels.txt").resolve()


def test_laying_it_twice_changes_nothing(overlay: Path, repository: Path) -> None:
    before = sorted(str(p.relative_to(overlay)) for p in overlay.rglob("*"))
    assert lay(repository, overlay).returncode == 0
    assert sorted(str(p.relative_to(overlay)) for p in overlay.rglob("*")) == before


def test_a_read_only_configuration_can_still_be_tuned(repository: Path, tmp_path: Path) -> None:
    (repository / "pre" / "config.pbtxt").chmod(0o444)
    assert lay(repository, tmp_path / "o").returncode == 0
    assert (tmp_path / "o" / "pre" / "config.pbtxt").stat().st_mode & 0o200


def test_a_folder_without_models_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = lay(tmp_path / "empty", tmp_path / "o")
    assert done.returncode == 1
    assert "no model folders here" in done.stderr


def test_tuned_settings_are_merged_and_the_repository_is_not_touched(
    overlay: Path, repository: Path, tmp_path: Path
) -> None:
    wanted = ModelSettings(4, 16, Batching(5000, (4, 8)))
    merge(tuned(tmp_path, pre=wanted), overlay, gpus=2)
    assert settings_of(from_text((overlay / "pre" / "config.pbtxt").read_text())) == wanted
    assert (repository / "pre" / "config.pbtxt").read_text() == MEMBER.format(name="pre")
    assert (overlay / "fwd" / "config.pbtxt").read_text() == MEMBER.format(name="fwd")


def test_settings_that_a_file_already_has_leave_its_comments(overlay: Path, tmp_path: Path) -> None:
    commented = "# ours\n" + MEMBER.format(name="pre")
    (overlay / "pre" / "config.pbtxt").write_text(commented)
    merge(tuned(tmp_path, pre=ModelSettings(1, 16)), overlay, gpus=0)
    assert (overlay / "pre" / "config.pbtxt").read_text() == commented


@pytest.mark.parametrize("content", ["{", '{"pre": {"instances": "4"}}', "\x00", '{"pre": 1}'])
def test_broken_settings_are_reported_and_the_pod_comes_up_as_the_repository_says(
    content: str, overlay: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content)
    assert main(["--settings", str(path), "--overlay", str(overlay)]) == 0
    assert "the repository stays as it is" in capsys.readouterr().err
    assert (overlay / "pre" / "config.pbtxt").read_text() == MEMBER.format(name="pre")


def test_no_settings_yet_is_no_error(overlay: Path, tmp_path: Path) -> None:
    assert merge(tmp_path / "missing.json", overlay, 0) == [
        f"{tmp_path / 'missing.json'}: not there; the repository stays as it is"
    ]


def test_one_models_invalid_setting_does_not_cost_the_others_theirs(overlay: Path, tmp_path: Path) -> None:
    path = tuned(tmp_path, pre=ModelSettings(0, 16), fwd=ModelSettings(3, 16), gone=ModelSettings(1, 1))
    said = "\n".join(merge(path, overlay, 0))
    assert "pre.instances = 0" in said
    assert "gone: tuned, but" in said
    assert settings_of(from_text((overlay / "fwd" / "config.pbtxt").read_text())).instances == 3
    assert (overlay / "pre" / "config.pbtxt").read_text() == MEMBER.format(name="pre")


def test_settings_that_would_break_an_ensemble_are_left_out_altogether(overlay: Path, tmp_path: Path) -> None:
    path = tuned(tmp_path, pre=ModelSettings(2, 8), fwd=ModelSettings(3, 16))
    said = merge(path, overlay, 0)
    assert "pre.max_batch_size = 8: the ensemble pipe sends batches of up to 16" in said[-1]
    assert (overlay / "fwd" / "config.pbtxt").read_text() == MEMBER.format(name="fwd")
    lower = tuned(tmp_path, pre=ModelSettings(2, 8), pipe=ModelSettings(1, 8))
    merge(lower, overlay, 0)
    assert from_text((overlay / "pipe" / "config.pbtxt").read_text()).max_batch_size == 8


def test_a_configuration_that_cannot_be_read_is_left_to_the_server(overlay: Path, tmp_path: Path) -> None:
    (overlay / "pre" / "config.pbtxt").write_text("max_batch_size: ${triton_max_batch_size}")
    said = "\n".join(merge(tuned(tmp_path, pre=ModelSettings(2, 8), fwd=ModelSettings(2, 16)), overlay, 0))
    assert "pre/config.pbtxt: line 1" in said
    assert (overlay / "pre" / "config.pbtxt").read_text() == "max_batch_size: ${triton_max_batch_size}"
    assert settings_of(from_text((overlay / "fwd" / "config.pbtxt").read_text())).instances == 2


def test_the_init_container_starts_without_the_libraries_of_the_loop() -> None:
    program = "import sys, slo_operator.overlay; print([m for m in ('kopf', 'kubernetes', 'pydantic', 'aiohttp') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_a_movable_model_gets_the_stand_in_beside_its_code(
    overlay: Path, repository: Path, tmp_path: Path
) -> None:
    merge(tmp_path / "missing.json", overlay, 0, movable=True)
    there = overlay / "pre" / "1"
    assert (there / ENTRY_FILE).exists()
    assert (there / "inferenceslo_remote" / "pool.py").exists()
    assert not (overlay / "pipe" / "1" / ENTRY_FILE).exists(), "an ensemble has no code"
    assert list((repository / "pre" / "1").iterdir()) == [repository / "pre" / "1" / "model.py"]


def test_a_pod_that_starts_with_a_moved_model_has_what_it_needs_whatever_the_arguments_say(
    overlay: Path, tmp_path: Path
) -> None:
    moved = ModelSettings(16, 16, remote=Remote(200))
    merge(tuned(tmp_path, pre=moved), overlay, 0)
    config = from_text((overlay / "pre" / "config.pbtxt").read_text())
    assert settings_of(config) == moved
    assert (overlay / "pre" / "1" / config.default_model_filename).exists()
