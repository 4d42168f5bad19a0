"""The emulation's numbers, read from calibration.toml (which says where they come from)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("calibration.toml")


@dataclass(frozen=True, slots=True)
class Curve:
    """A value by batch size, linear between the given sizes and beyond the last two."""

    points: tuple[tuple[int, float], ...]

    def at(self, batch: int) -> float:
        """The value at a batch of `batch` ≥ 1 items."""
        if len(self.points) == 1:
            return self.points[0][1]
        right = next((i for i, (size, _) in enumerate(self.points) if size >= batch), len(self.points) - 1)
        right = max(right, 1)
        (b0, v0), (b1, v1) = self.points[right - 1], self.points[right]
        return v0 + (v1 - v0) * (batch - b0) / (b1 - b0)


@dataclass(frozen=True, slots=True)
class CpuStage:
    """Seconds of one core for an item: base plus seconds per token, at most `max_seconds`."""

    base_seconds: float
    seconds_per_token: float
    max_seconds: float

    def seconds(self, tokens: int) -> float:
        return min(self.base_seconds + self.seconds_per_token * tokens, self.max_seconds)


@dataclass(frozen=True, slots=True)
class ForwardModel:
    """A model on a GPU.

    seconds: time of one execution by batch size. busy_share: share of the GPU that it keeps busy meanwhile.
    memory_mib: per loaded instance. load_seconds: time of a load.
    """

    seconds: Curve
    busy_share: Curve
    memory_mib: int
    load_seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    gpu_memory_mib: int
    preprocessing: CpuStage
    postprocessing: CpuStage
    forward: Mapping[str, ForwardModel]

    def forward_model(self, name: str) -> ForwardModel:
        """Raises ValueError for a model without numbers."""
        try:
            return self.forward[name]
        except KeyError:
            known = ", ".join(sorted(self.forward))
            raise ValueError(f"no calibration for model {name!r}: it has {known}") from None


def load_profile(environment: Mapping[str, str] = os.environ) -> Profile:
    """The profile EMULATION_PROFILE (default `a100`) of the file EMULATION_CALIBRATION (default: built in)."""
    path = Path(environment.get("EMULATION_CALIBRATION") or _FILE)
    name = environment.get("EMULATION_PROFILE") or "a100"
    profiles = tomllib.loads(path.read_text(encoding="utf-8"))
    if name not in profiles:
        raise ValueError(f"EMULATION_PROFILE={name!r}: {path} has {', '.join(sorted(profiles))}")
    return _profile(profiles[name])


def _profile(table: Mapping[str, Any]) -> Profile:
    return Profile(
        gpu_memory_mib=int(table["gpu_memory_mib"]),
        preprocessing=_stage(table["preprocessing"]),
        postprocessing=_stage(table["postprocessing"]),
        forward={name: _forward(table["curves"], model) for name, model in table["forward"].items()},
    )


def _stage(table: Mapping[str, float]) -> CpuStage:
    return CpuStage(
        base_seconds=table["base_ms"] / 1000,
        seconds_per_token=table["us_per_token"] / 1e6,
        max_seconds=table["max_ms"] / 1000,
    )


def _forward(curves: Mapping[str, Mapping[str, float]], model: Mapping[str, float]) -> ForwardModel:
    return ForwardModel(
        seconds=_curve(curves["latency_ms"], 1e-3),
        busy_share=_curve(curves["busy_share"], 1.0),
        memory_mib=int(model["memory_mib"]),
        load_seconds=float(model["load_seconds"]),
    )


def _curve(table: Mapping[str, float], scale: float) -> Curve:
    return Curve(tuple(sorted((int(batch), value * scale) for batch, value in table.items())))
