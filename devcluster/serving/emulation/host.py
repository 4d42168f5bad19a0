"""The emulated host that this process runs on, read from the environment of the container.

EMULATED_CPU_CORES      cores of the container, may be fractional (the pod's CPU limit by the downward API)
EMULATED_OTHER_CORES    how many of them something else keeps busy all the time (agents, proxies); default 0
NVIDIA_VISIBLE_DEVICES  the device plugin's GPUs, comma-separated; EMULATED_GPUS (default 2) when there is none
EMULATION_ACCOUNT       file of the shared account, default /dev/shm/emulated-host
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .account import Account
from .calibration import Profile

DEFAULT_ACCOUNT = "/dev/shm/emulated-host"
DEFAULT_CORES = 8.0


@dataclass(frozen=True, slots=True)
class Host:
    """cores: emulated CPU cores. other_cores: those that something else asks for, all the time.
    gpus: identities of the GPUs, in the container's order."""

    cores: float
    other_cores: float
    gpus: tuple[str, ...]
    account: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Host:
        """Raises ValueError that names the variable."""
        return cls(
            cores=_positive(environment, "EMULATED_CPU_CORES", DEFAULT_CORES),
            other_cores=_number(environment, "EMULATED_OTHER_CORES", 0.0),
            gpus=_gpus(environment),
            account=Path(environment.get("EMULATION_ACCOUNT") or DEFAULT_ACCOUNT),
        )

    def open_account(self, profile: Profile) -> Account:
        """This process's view of the pod's account."""
        return Account(self.account, [self.cores, *(1.0 for _ in self.gpus)], profile.gpu_memory_mib)

    def gpu_of(self, instance_name: str) -> int:
        """GPU number of a Triton instance (`model_<group>_<index>`): instances take turns on the GPUs."""
        index = instance_name.rpartition("_")[2]
        if not index.isdecimal():
            raise ValueError(f"instance name {instance_name!r} does not end in _<index>")
        return int(index) % len(self.gpus)


def _positive(environment: Mapping[str, str], name: str, default: float) -> float:
    value = _number(environment, name, default)
    if value == 0:
        raise ValueError(f"{name}={value:g}: a number above 0 is needed")
    return value


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}={text!r}: a number is needed that is not negative")
    return value


def _gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(name for name in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if name)
    if names and names[0] not in {"all", "none", "void"}:
        return names
    count = int(_positive(environment, "EMULATED_GPUS", 2))
    return tuple(f"GPU-emulated-{number}" for number in range(count))
