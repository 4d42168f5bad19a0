"""Faults on purpose, for tests of whatever runs in front of this server.

A JSON object in the environment variable EMULATION_FAULTS, or in the file EMULATION_FAULTS_FILE (default
/dev/shm/emulation-faults.json; read anew for each execution and load, so a test can write it at any time):

    {"fail_load": ["forward-base"],      loads of these models are refused
     "slow": {"forward-small": 1.5},     times of these models are multiplied
     "batching_adds_ms": 80}             a model with dynamic batching and a queue delay above 0 takes longer

`batching_adds_ms` makes a *setting* harmful: a canary with batching on gets worse than its peers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_FILE = "/dev/shm/emulation-faults.json"


class RefusedLoad(RuntimeError):
    """A load that a test asked to fail."""


@dataclass(frozen=True, slots=True)
class Faults:
    fail_load: frozenset[str] = frozenset()
    slow: Mapping[str, float] = field(default_factory=dict)
    batching_adds_seconds: float = 0.0

    def check_load(self, model: str) -> None:
        """Raises RefusedLoad when loads of the model are to fail."""
        if model in self.fail_load:
            raise RefusedLoad(f"the load of {model} is refused on purpose (emulation fault fail_load)")

    def seconds(self, model: str, seconds: float, *, delays_batches: bool) -> float:
        """An execution's time with the faults in it."""
        return seconds * self.slow.get(model, 1.0) + (self.batching_adds_seconds if delays_batches else 0.0)


def current_faults(environment: Mapping[str, str] = os.environ) -> Faults:
    """The faults asked for now; the file wins over the variable. Raises ValueError on anything but JSON."""
    path = Path(environment.get("EMULATION_FAULTS_FILE") or DEFAULT_FILE)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        text = environment.get("EMULATION_FAULTS", "")
    if not text.strip():
        return Faults()
    table: dict[str, Any] = json.loads(text)
    unknown = table.keys() - {"fail_load", "slow", "batching_adds_ms"}
    if unknown:
        raise ValueError(f"emulation faults: unknown {', '.join(sorted(unknown))}")
    return Faults(
        fail_load=frozenset(table.get("fail_load", ())),
        slow={name: float(factor) for name, factor in table.get("slow", {}).items()},
        batching_adds_seconds=float(table.get("batching_adds_ms", 0.0)) / 1000,
    )


def delays_batches(model_config: Mapping[str, Any]) -> bool:
    """Whether a Triton model configuration has dynamic batching with a queue delay above 0."""
    batching = model_config.get("dynamic_batching") or {}
    return int(batching.get("max_queue_delay_microseconds", 0) or 0) > 0
