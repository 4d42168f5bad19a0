"""A model repository on disk: its configurations, in the tuner's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format

from slo_operator.render.model_config import from_text, model_of
from slo_tuner.snapshot import ModelConfig

CONFIG = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class Repository:
    """`models` by name; `broken`: files that are no configuration, with the reason (it names line and column)."""

    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    broken: Mapping[Path, str] = field(default_factory=dict)


def read_repository(folder: Path, gpus: int) -> Repository:
    """Every `*/config.pbtxt` below the folder; `gpus` of one server. Raises OSError when it cannot be listed."""
    models: dict[str, ModelConfig] = {}
    broken: dict[Path, str] = {}
    for file in sorted(path / CONFIG for path in folder.iterdir() if (path / CONFIG).is_file()):
        try:
            config = from_text(file.read_text("utf-8"))
        except (text_format.ParseError, ValueError, OSError) as error:
            broken[file] = str(error)
            continue
        config.name = config.name or file.parent.name
        models[config.name] = model_of(config, gpus)
    return Repository(models, broken)
