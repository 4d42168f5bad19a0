"""The pod's shared account: who executes on which cores and GPUs, and who holds GPU memory.

All Python-backend processes of one Triton map the same file. A *resource* (the CPU cores together, or
one GPU) has a capacity; executions have weights (1 core, or a busy share of the GPU). While the weights
fit the capacity everyone runs at full speed, beyond it all slow down alike (processor sharing):

    rate = min(1, capacity / sum of weights)        virtual time = integral of rate

An execution that needs `w` seconds of undisturbed time is over when the virtual time has grown by `w`.
Virtual time only bends when an execution starts or stops, so it is advanced exactly at those events and
nobody has to poll while there is no contention.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAX_SLOTS = 256
MAX_RESOURCES = 17  # the cores and up to 16 GPUs
CPU = 0  #: resource number of the cores; GPU g is resource g + 1

_MAGIC = 0x51_0A_CC_02
_SWEEP_SECONDS = 1.0
_HEADER = np.dtype([("magic", "i8"), ("swept", "f8")])
_RESOURCE = np.dtype([("capacity", "f8"), ("virtual", "f8"), ("updated", "f8"), ("used", "f8")])
_SLOT = np.dtype(
    [("pid", "i8"), ("born", "i8"), ("resource", "i8"), ("weight", "f8"), ("gpu", "i8"), ("mib", "i8")]
)
_FREE = 0  # pid of an unused slot
_SIZE = _HEADER.itemsize + MAX_RESOURCES * _RESOURCE.itemsize + MAX_SLOTS * _SLOT.itemsize


class OutOfGpuMemory(RuntimeError):
    """A copy does not fit in the GPU's free memory."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Virtual seconds of a resource so far, and virtual seconds per second from now on."""

    virtual: float
    rate: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What the emulated host and GPUs did: seconds are cumulative, memory is now."""

    cpu_seconds: float
    gpu_busy_seconds: tuple[float, ...]
    gpu_memory_mib: tuple[int, ...]


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the name, in parentheses, may hold anything: count fields after its end (proc(5), field 22)
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


class Account:
    """One process's view of the account in `path`, which is made when missing.

    capacities: cores, then one number per GPU (1.0 = a whole GPU).
    gpu_memory_mib: memory of each GPU.
    `clock`, `pid` and `born_of` are for tests; `born_of(pid)` is None for a dead process.
    """

    def __init__(
        self,
        path: Path,
        capacities: Sequence[float],
        gpu_memory_mib: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        pid: int | None = None,
        born_of: Callable[[int], int | None] = process_start,
    ) -> None:
        if not 1 <= len(capacities) <= MAX_RESOURCES or min(capacities) <= 0:
            raise ValueError(
                f"emulated capacities {list(capacities)}: give the cores and at most "
                f"{MAX_RESOURCES - 1} GPUs, each above 0"
            )
        self._gpus = len(capacities) - 1
        self._gpu_memory_mib = gpu_memory_mib
        self._clock = clock
        self._pid = os.getpid() if pid is None else pid
        self._born_of = born_of
        self._slot: int | None = None
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self._locked():
            os.ftruncate(self._file, _SIZE)
            self._map = mmap.mmap(self._file, _SIZE)
            self._header: NDArray[np.void] = np.frombuffer(self._map, _HEADER, 1)
            at = _HEADER.itemsize
            self._resources: NDArray[np.void] = np.frombuffer(self._map, _RESOURCE, MAX_RESOURCES, at)
            at += MAX_RESOURCES * _RESOURCE.itemsize
            self._slots: NDArray[np.void] = np.frombuffer(self._map, _SLOT, MAX_SLOTS, at)
            now = self._clock()
            if self._header["magic"][0] != _MAGIC:
                self._map[:] = bytes(_SIZE)
                self._header["magic"] = _MAGIC
                self._resources["updated"] = now
            self._resources["capacity"][: len(capacities)] = capacities
            self._sweep(now)

    def join(self) -> None:
        """Take a slot for this process. Raises RuntimeError when all are taken by living processes."""
        with self._locked():
            self._sweep(self._clock())
            free = np.flatnonzero(self._slots["pid"] == _FREE)
            if not free.size:
                raise RuntimeError(f"the emulated host already runs {MAX_SLOTS} model instances")
            self._slot = int(free[0])
            self._slots[self._slot] = (self._pid, self._born_of(self._pid) or 0, 0, 0.0, -1, 0)

    def reserve(self, gpu: int, mib: int, what: str, gpu_name: str) -> None:
        """Take `mib` MiB of GPU `gpu` until `leave` or death. Raises OutOfGpuMemory, with nothing taken."""
        slot = self._own_slot()
        with self._locked():
            self._sweep(self._clock())
            free = self._gpu_memory_mib - self._memory(gpu)
            if mib > free:
                raise OutOfGpuMemory(
                    f"CUDA out of memory (emulated): {what} needs {mib} MiB on {gpu_name}, {free} of "
                    f"{self._gpu_memory_mib} MiB are free. Load fewer instances, or unload another model first"
                )
            self._slots["gpu"][slot] = gpu
            self._slots["mib"][slot] = mib

    def start(self, resource: int, weight: float) -> Progress:
        """Begin an execution of this process on a resource; one at a time."""
        slot = self._own_slot()
        with self._locked():
            self._advance(resource, self._clock())
            self._slots["resource"][slot] = resource
            self._slots["weight"][slot] = weight
            return self._progress(resource)

    def progress(self, resource: int) -> Progress:
        """Where the resource's virtual time is now. While it is contended, dead processes are dropped too."""
        with self._locked():
            now = self._clock()
            self._advance(resource, now)
            progress = self._progress(resource)
            if progress.rate < 1 and now - float(self._header["swept"][0]) >= _SWEEP_SECONDS:
                self._sweep(now)
                progress = self._progress(resource)
            return progress

    def stop(self) -> float:
        """End this process's execution. Returns the resource's virtual time."""
        slot = self._own_slot()
        with self._locked():
            resource = int(self._slots["resource"][slot])
            self._advance(resource, self._clock())
            self._slots["weight"][slot] = 0.0
            return float(self._resources["virtual"][resource])

    def leave(self) -> None:
        """Give back the slot with its memory. Harmless when there is none."""
        if self._slot is None:
            return
        with self._locked():
            self._advance_all(self._clock())
            self._slots[self._slot] = (_FREE, 0, 0, 0.0, -1, 0)
        self._slot = None

    def usage(self) -> Usage:
        """The account so far, dead processes dropped."""
        with self._locked():
            self._sweep(self._clock())
            used = self._resources["used"]
            gpus = range(self._gpus)
            return Usage(
                cpu_seconds=float(used[CPU]),
                gpu_busy_seconds=tuple(float(used[1 + gpu]) for gpu in gpus),
                gpu_memory_mib=tuple(self._memory(gpu) for gpu in gpus),
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)  # the kernel frees it when the holder is killed
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _own_slot(self) -> int:
        if self._slot is None:
            raise RuntimeError("join the account first")
        return self._slot

    def _memory(self, gpu: int) -> int:
        return int(self._slots["mib"][self._slots["gpu"] == gpu].sum())

    def _weight(self, resource: int) -> float:
        return float(self._slots["weight"][self._slots["resource"] == resource].sum())

    def _progress(self, resource: int) -> Progress:
        weight = self._weight(resource)
        capacity = float(self._resources["capacity"][resource])
        return Progress(
            virtual=float(self._resources["virtual"][resource]),
            rate=1.0 if weight <= capacity else capacity / weight,
        )

    def _advance(self, resource: int, now: float) -> None:
        row = self._resources[resource]
        seconds = max(0.0, now - float(row["updated"]))
        row["virtual"] += seconds * self._progress(resource).rate
        row["used"] += seconds * min(self._weight(resource), float(row["capacity"]))
        row["updated"] = now

    def _advance_all(self, now: float) -> None:
        for resource in range(1 + self._gpus):
            self._advance(resource, now)

    def _sweep(self, now: float) -> None:
        """Free the slots of dead processes; a reused pid has another start time."""
        self._advance_all(now)
        for slot in np.flatnonzero(self._slots["pid"] != _FREE):
            pid = int(self._slots["pid"][slot])
            if self._born_of(pid) != int(self._slots["born"][slot]):
                self._slots[slot] = (_FREE, 0, 0, 0.0, -1, 0)
        self._header["swept"] = now
