"""How late this machine was while a test ran, and a failure on one that is too busy to show anything.

The loop's tests wait for decisions that rest on minutes of measurements, and their servers keep to emulated times. On
a machine that hands out its processors seconds late, requests pile up and time out that would not, and deadlines pass.
A failure there is neither passed nor failed: it is skipped, with the figure, and whoever runs the suite must show that
(scripts/run_tests.py does).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

from demo.probe import Probe

#: p99 of a sleeping probe's lateness over a test; two halves of these tests beside each other stay well below it
TOO_LATE_MS = 100.0


class Noise:
    """The demo's probe, for as long as a session of tests; lateness by test module."""

    def __init__(self) -> None:
        self._probe = Probe()
        self._process: subprocess.Popen[str] | None = None
        self.latest: dict[str, float] = {}

    def start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.probe"], stdout=subprocess.PIPE, text=True
            )
            threading.Thread(target=self._read, daemon=True).start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=10)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # the last line may be cut off
                self._probe.hear(line)

    def note(self, module: str, start: float, end: float) -> float:
        """The worst lateness of the module's tests so far, with this one: they build on each other."""
        late = self._probe.p99_ms(start, end) if end - start > 5.0 else None
        self.latest[module] = max(self.latest.get(module, 0.0), late or 0.0)
        return self.latest[module]


def excuse(late_ms: float) -> str | None:
    """Why a failure counts for nothing; None when it counts."""
    if late_ms <= TOO_LATE_MS:
        return None
    return (
        f"INCONCLUSIVE: machine too noisy: a sleeping probe woke up {late_ms:.0f} ms late (p99) in one of the tests of"
        f" this file, more than {TOO_LATE_MS:.0f} ms; the test failed, which shows nothing"
    )
