"""How punctual this machine is: a process that sleeps 10 ms at a time and tells how late it woke.

`python -m demo.probe` prints one JSON list per second, [Unix time, lateness in ms, …]. It runs as a process
of its own, so that the demo's own work does not delay it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import AsyncIterator

SLEEP_S = 0.01


class Probe:
    """The latenesses that the probe process has reported."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, list[float]]] = []

    def add(self, time_s: float, lateness_ms: list[float]) -> None:
        """Lateness of the wake-ups in the second before `time_s` (Unix time)."""
        self._seen.append((time_s, lateness_ms))

    def hear(self, line: str | bytes) -> None:
        """A line that the process printed. Raises ValueError for one that is cut off."""
        at, *lateness = json.loads(line)
        self.add(at, lateness)

    def p99_ms(self, start: float, end: float) -> float | None:
        """The 99th percentile (nearest rank) of wake-ups in [start, end]; None without any."""
        found = sorted(late for at, lates in self._seen if start <= at <= end + 1 for late in lates)
        return found[math.ceil(0.99 * len(found)) - 1] if found else None


@contextlib.asynccontextmanager
async def probing() -> AsyncIterator[Probe]:
    """A probe that runs as long as the context does."""
    probe = Probe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "demo.probe", stdout=asyncio.subprocess.PIPE
    )

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            probe.hear(line)

    reading = asyncio.create_task(read())
    try:
        yield probe
    finally:
        reading.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def main() -> None:
    """Sleep and tell, for ever."""
    lateness: list[float] = []
    told = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while True:
            before = time.monotonic()
            time.sleep(SLEEP_S)
            now = time.monotonic()
            lateness.append(round((now - before - SLEEP_S) * 1000, 3))
            if now - told >= 1.0:
                print(json.dumps([time.time(), *lateness]), flush=True)
                lateness, told = [], now


if __name__ == "__main__":
    main()
