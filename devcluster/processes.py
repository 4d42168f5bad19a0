"""Long-running processes: started once, found again after anything was killed, stopped by identity and never by name.

A process writes its own pid file (pid and start time) before it becomes the program, so there is no moment at which it
runs unknown, and a pid that was used again by someone else is never taken for it.
"""

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.layout import Layout
from devcluster.shell import ENVIRONMENT, ClusterError

MARK = "INFERENCESLO_CLUSTER"

# Field 22 of stat is the start time: the name in field 2 is "(sh)", so blanks are separators here.
_BECOME = """
pid_file=$1 fingerprint=$2; shift 2
start=$(cut -d" " -f22 </proc/$$/stat)
echo "$$ $start $fingerprint" >"$pid_file.new" && mv "$pid_file.new" "$pid_file" && exec "$@"
"""


@dataclass(frozen=True)
class Component:
    """A process to keep: its command, the namespaces it runs in, and how to tell that it serves."""

    name: str
    argv: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # what it reads only when it starts
    ready: Callable[[], bool] | None = None
    stop_seconds: float = 3.0

    def fingerprint(self) -> str:
        """Changes whenever the process would have to be started anew to run as described."""
        variables = (f"{name}={value}" for name, value in sorted(self.environment.items()))
        digest = hashlib.sha256("\0".join((*self.namespaces, *self.argv, *variables)).encode())
        for file in self.files:
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Running:
    """A process that lives: its pid, its start time in clock ticks since boot, and what it was started as."""

    pid: int
    start: int
    fingerprint: str


def start_time(pid: int) -> int | None:
    """When a process began (clock ticks since boot); None when there is none, or only its zombie."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


class Supervisor:
    """Starts, finds and stops the processes of one cluster."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def _pid_file(self, name: str) -> Path:
        return self._layout.pids / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        return self._layout.logs / f"{name}.log"

    def find(self, name: str) -> Running | None:
        """The live process of that name, if any."""
        with contextlib.suppress(OSError, ValueError):
            pid, start, fingerprint = self._pid_file(name).read_text().split()
            if start_time(int(pid)) == int(start):
                return Running(int(pid), int(start), fingerprint)
        return None

    def names(self) -> list[str]:
        """Every process that was ever started in this state folder, dead or alive."""
        return sorted(path.stem for path in self._layout.pids.glob("*.pid"))

    def ensure(self, component: Component) -> bool:
        """Have the component running as described. True when it had to be started (again)."""
        self.stop_outdated(component)
        if self.find(component.name) is not None:
            return False
        self._start(component)
        return True

    def stop_outdated(self, component: Component) -> None:
        """Stop the component if it runs, but not as described."""
        running = self.find(component.name)
        if running is not None and running.fingerprint != component.fingerprint():
            self.stop(component.name, component.stop_seconds)

    def _start(self, component: Component) -> None:
        self._layout.pids.mkdir(parents=True, exist_ok=True)
        self._layout.logs.mkdir(parents=True, exist_ok=True)
        pid_file = self._pid_file(component.name)
        pid_file.unlink(missing_ok=True)
        enter = ["nsenter", *component.namespaces, "--"] if component.namespaces else []
        become = ["sh", "-c", _BECOME, "sh", str(pid_file), component.fingerprint()]
        with self.log_file(component.name).open("ab") as log:
            # setsid forks: the process belongs to init at once, whatever becomes of us.
            subprocess.run(
                ["setsid", "--fork", *become, *enter, *component.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**ENVIRONMENT, **component.environment, MARK: self._layout.key},
                check=True,
            )
        deadline = time.monotonic() + 20.0
        while not pid_file.exists():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{component.name}: could not be started: {self._last_words(component.name)}"
                )
            time.sleep(0.01)

    def wait_ready(self, component: Component, timeout: float = 60.0) -> None:
        """Wait until the component serves; `ClusterError` with its last words when it ends or takes too long."""
        deadline = time.monotonic() + timeout
        while True:
            alive = self.find(component.name) is not None
            if alive and (component.ready is None or component.ready()):
                return
            if not alive:
                raise ClusterError(
                    f"{component.name}: ended while starting: {self._last_words(component.name)}"
                )
            if time.monotonic() > deadline:
                said = self._last_words(component.name)
                raise ClusterError(f"{component.name}: not ready after {timeout:.0f} s: {said}")
            time.sleep(0.1)

    def _last_words(self, name: str) -> str:
        log = self.log_file(name)
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").strip().splitlines()
            return f"{' / '.join(lines[-2:])[-600:]} (all of it: {log})"
        return f"nothing in {log}"

    def stop(self, name: str, seconds: float = 10.0) -> None:
        """End the process of that name: a request first, force after `seconds`. Does nothing when it is gone."""
        running = self.find(name)
        if running is not None:
            end(running.pid, running.start, seconds)
        self._pid_file(name).unlink(missing_ok=True)


def end(pid: int, start: int, seconds: float) -> None:
    """End the process `pid` that began at `start`, and wait until it has; nobody else who got its number is hit."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_time(pid) != start:
            return
        for what, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, what)
            if select.select([handle], [], [], patience)[0]:
                return
        raise ClusterError(f"process {pid}: still there 10 s after SIGKILL (stuck in the kernel?)")
    finally:
        os.close(handle)


def marked(key: str) -> list[int]:
    """Every process that was started for the cluster `key`, or by one that was, pid file or not."""
    found = []
    needle = f"{MARK}={key}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "environ").read_bytes().split(b"\0")
                if needle in words and start_time(int(folder.name)) is not None:
                    found.append(int(folder.name))
    return sorted(found)
