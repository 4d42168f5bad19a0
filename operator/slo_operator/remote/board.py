"""What the processes of one pod tell each other about the pool's members: who is busy with which, and who failed.

Triton runs every instance of a Python model as a process of its own with one request at a time, so the number of
requests outstanding at a member is only known to all of them together. Each process owns a row of a small shared file
and writes nothing else; a row is held by a lock that the kernel drops with its process, and what a row says grows
stale by itself. Nobody waits for anybody.
"""

from __future__ import annotations

import fcntl
import ipaddress
import mmap
import os
import struct
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

ROWS = 256
#: busy with this address, until; this address failed, until (seconds of the clock that all processes share)
_ROW = struct.Struct("<16sd16sd")
_NOBODY = bytes(16)


class Board:
    """This process's row, and a view of all. `now` is always passed in: time.monotonic, the same in every process."""

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, ROWS * _ROW.size)
        self._row = self._claim()
        self._map = mmap.mmap(self._file, ROWS * _ROW.size)
        self._write(_NOBODY, 0.0, _NOBODY, 0.0)

    def _claim(self) -> int:
        for row in range(ROWS):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, _ROW.size, row * _ROW.size)
            except OSError:
                continue
            return row
        raise OSError(
            f"all {ROWS} rows are taken: that many instances of one model in one pod are not foreseen"
        )

    def close(self) -> None:
        """Give the row back."""
        self.free()
        self._map.close()
        os.close(self._file)

    def busy(self, address: str, until: float) -> None:
        """This process waits for that member, not longer than until then."""
        _, _, failed, failed_until = self._mine()
        self._write(_packed(address), until, failed, failed_until)

    def free(self) -> None:
        """It no longer does."""
        _, _, failed, failed_until = self._mine()
        self._write(_NOBODY, 0.0, failed, failed_until)

    def failed(self, address: str, until: float) -> None:
        """Nobody should ask that member until then."""
        busy, busy_until, _, _ = self._mine()
        self._write(busy, busy_until, _packed(address), until)

    def outstanding(self, addresses: Collection[str], now: float) -> dict[str, int]:
        """Requests of this pod that wait for each member; members that somebody saw fail lately are left out."""
        outstanding: Counter[bytes] = Counter()
        failing = set()
        for busy, busy_until, failed, failed_until in _ROW.iter_unpack(self._map[:]):
            if busy_until > now:
                outstanding[busy] += 1
            if failed_until > now:
                failing.add(failed)
        packed = {address: _packed(address) for address in addresses}
        return {address: outstanding[key] for address, key in packed.items() if key not in failing}

    def _mine(self) -> tuple[bytes, float, bytes, float]:
        found: tuple[bytes, float, bytes, float] = _ROW.unpack_from(self._map, self._row * _ROW.size)
        return found

    def _write(self, busy: bytes, busy_until: float, failed: bytes, failed_until: float) -> None:
        _ROW.pack_into(self._map, self._row * _ROW.size, busy, busy_until, failed, failed_until)


@lru_cache(maxsize=1024)
def _packed(address: str) -> bytes:
    found = ipaddress.ip_address(address)
    return found.packed if found.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}").packed
