"""A model repository on disk: its configurations, in the tuner's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slo_operator.render.model_config import CONFIG_FILE, from_text, model_of
from slo_tuner.snapshot import ModelConfig


def files_of(path: Path) -> list[Path]:
    """The configurations at a path: a file, a model's folder, or a repository's. Raises OSError."""
    if path.is_file():
        return [path]
    if (path / CONFIG_FILE).is_file():
        return [path / CONFIG_FILE]
    return sorted(child / CONFIG_FILE for child in path.iterdir() if (child / CONFIG_FILE).is_file())


@dataclass(frozen=True, slots=True)
class Repository:
    """`models` by name; `broken`: files that are no configuration, with the reason (it names line and column)."""

    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    broken: Mapping[Path, str] = field(default_factory=dict)


def read_repository(folder: Path, gpus: int) -> Repository:
    """Every configuration at the folder; `gpus` of one server. Raises OSError when it cannot be listed."""
    models: dict[str, ModelConfig] = {}
    broken: dict[Path, str] = {}
    for file in files_of(folder):
        try:
            config = from_text(file.read_text("utf-8"))
        except (ValueError, OSError) as error:
            broken[file] = str(error)
            continue
        config.name = config.name or file.parent.name
        models[config.name] = model_of(config, gpus)
    return Repository(models, broken)
