"""Running programs, errors that a person can read, and progress lines with times."""

import contextlib
import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": _SEARCH_PATH, "LANG": "C.UTF-8", "HOME": "/root"}


class ClusterError(Exception):
    """Something that a person has to know or to put right: what, where, and what would be right, in one line."""


def run(argv: Sequence[object], *, stdin: str | IO[bytes] | None = None, timeout: float = 120.0) -> str:
    """Run a program to its end and return its standard output; `ClusterError` when it fails, with its last words."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin.encode() if isinstance(stdin, str) else None,
            stdin=None if isinstance(stdin, str) else (stdin or subprocess.DEVNULL),
            capture_output=True,
            timeout=timeout,
            env=ENVIRONMENT,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterError(f"{words[0]}: not found on {_SEARCH_PATH}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{' '.join(words[:6])}: no end after {timeout:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-3:]
        raise ClusterError(f"{' '.join(words[:8])}: exit code {done.returncode}: {' / '.join(said)}")
    return done.stdout.decode(errors="replace")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file unless it says that already: kube-proxy ends at once when its configuration is written again."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode)
    path.write_text(text)
    path.chmod(mode)


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock file; whoever comes second waits. The kernel frees it when the holder is killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Progress:
    """Progress lines on standard error, each with the seconds since the start."""

    def __init__(self, quiet: bool = False) -> None:
        self._start = time.monotonic()
        self._quiet = quiet

    def restart(self) -> None:
        """Count from now."""
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._quiet:
            print(f"{time.monotonic() - self._start:6.1f}s  {text}", file=sys.stderr, flush=True)
