"""Merge tuned settings over a model repository's overlay, before the server starts.

    python -m slo_operator.overlay --settings /tuned/settings.json --overlay /overlay [--gpus 2] [--movable]

Runs as an init container, so a pod comes up tuned also while the operator is down. It never keeps a pod from
starting: whatever cannot be applied is said on standard error and left as the repository has it. Settings that
fit each model but not their ensemble are left out altogether. Where stages may be moved to a pool, every model of the
Python backend gets the stand-in's files beside its own. The exit code is 0 unless the command line is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from slo_operator import remote
from slo_operator.render.model_config import CONFIG_FILE, apply_settings, from_text, settings_of, to_text
from slo_operator.render.remote import ENTRY_FILE
from slo_operator.render.tuned import settings_from_json
from slo_tuner.settings import ModelSettings, PodSettings

#: `slo_operator.remote` under a name of its own, in a version's folder
PACKAGE = "inferenceslo_remote"
ENTRY = f"""\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from {PACKAGE}.model import TritonPythonModel  # noqa: E402, F401
"""


def main(arguments: list[str] | None = None) -> int:
    """Merge; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m slo_operator.overlay", description="Merge tuned settings."
    )
    parser.add_argument("--settings", type=Path, required=True, help="settings.json; may be missing")
    parser.add_argument(
        "--overlay", type=Path, required=True, help="folder with one writable folder per model"
    )
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of this pod")
    parser.add_argument("--movable", action="store_true", help="stages may be moved to a pool")
    options = parser.parse_args(arguments)
    for line in merge(options.settings, options.overlay, options.gpus, options.movable):
        sys.stderr.write(line + "\n")
    return 0


def merge(settings_file: Path, overlay: Path, gpus: int, movable: bool = False) -> list[str]:
    """Rewrite the config.pbtxt of every model whose settings differ; return what there is to say."""
    files, said = _read_configs(overlay)
    settings: PodSettings = {}
    problem = ""
    try:
        settings = settings_from_json(settings_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problem = "not there"
    except (OSError, UnicodeDecodeError, ValueError) as error:
        problem = str(error)
    for model, config in files.items():
        # also without a declared pool: a stage that is still to come back is computed here, by its stand-in
        moved = model in settings and settings[model].remote is not None
        if config.backend == "python" and (movable or moved):
            said += _install(overlay / model)
    if problem:
        return [*said, f"{settings_file}: {problem}; the repository stays as it is"]
    wanted, refused = _apply(files, settings, overlay, gpus)
    said += refused
    conflict = _ensemble_conflict(files | wanted)
    if conflict:
        return [*said, f"{conflict}; the repository stays as it is"]
    for model, config in wanted.items():
        said.append(_write(overlay / model / CONFIG_FILE, config, settings[model]))
    return said


def _install(model: Path) -> list[str]:
    """Put the stand-in beside the code of every version."""
    try:
        for version in (v for v in model.iterdir() if v.is_dir() and v.name.isdecimal()):
            target = version / PACKAGE
            target.mkdir(exist_ok=True)
            for file in Path(remote.__file__).parent.glob("*.py"):
                shutil.copyfile(file, target / file.name)
            (version / ENTRY_FILE).write_text(ENTRY, encoding="utf-8")
    except OSError as error:
        return [f"{model}: {error}; cannot be moved to a pool"]
    return []


def _read_configs(overlay: Path) -> tuple[dict[str, ModelConfig], list[str]]:
    configs: dict[str, ModelConfig] = {}
    said: list[str] = []
    for folder in sorted(p for p in overlay.iterdir() if p.is_dir()) if overlay.is_dir() else []:
        path = folder / CONFIG_FILE
        try:
            configs[folder.name] = from_text(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            configs[folder.name] = ModelConfig()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            said.append(f"{path}: {error}; left to the server")
            continue
        if not configs[folder.name].name:
            configs[folder.name].name = folder.name
    return configs, said


def _apply(
    files: Mapping[str, ModelConfig], settings: PodSettings, overlay: Path, gpus: int
) -> tuple[dict[str, ModelConfig], list[str]]:
    wanted: dict[str, ModelConfig] = {}
    said: list[str] = []
    for model, setting in sorted(settings.items()):
        if model not in files:
            said.append(f"{model}: tuned, but {overlay} has no such model or it cannot be read; ignored")
            continue
        if not (overlay / model / CONFIG_FILE).exists():
            # the server completes such a model by itself, from what only it can read
            said.append(f"{model}: has no {CONFIG_FILE}; left to the server, settings follow once it runs")
            continue
        try:
            if settings_of(files[model], gpus) != setting:
                wanted[model] = apply_settings(files[model], setting, gpus)
        except ValueError as error:
            said.append(f"{error}; {model} stays as the repository has it")
    return wanted, said


def _ensemble_conflict(configs: Mapping[str, ModelConfig]) -> str | None:
    for name, config in configs.items():
        for step in config.ensemble_scheduling.step:
            member = configs.get(step.model_name)
            if member is not None and 0 < member.max_batch_size < config.max_batch_size:
                return (
                    f"{step.model_name}.max_batch_size = {member.max_batch_size}: the ensemble {name} sends batches"
                    f" of up to {config.max_batch_size}"
                )
    return None


def _write(path: Path, config: ModelConfig, setting: ModelSettings) -> str:
    scratch = path.with_suffix(".pbtxt.new")
    try:
        scratch.write_text(to_text(config), encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        return f"{path}: {error}; stays as it is"
    return f"{path.parent.name}: {setting}"


if __name__ == "__main__":
    sys.exit(main())
