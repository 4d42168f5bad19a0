"""Checks the lock files: every requirement hashed, no address of an index, pins as pyproject.toml asks.

Runs on the standard library alone, because it is also the first thing that a fresh clone runs.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^\s;\\]+)")


def normalised(name: str) -> str:
    """PEP 503: runs of -, _ and . are one dash, letters are small."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> tuple[dict[str, str], list[str]]:
    """The pins of a lock file (name → version) and what is wrong with it."""
    pins: dict[str, str] = {}
    problems: list[str] = []
    unhashed: str | None = None
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        where = f"{path.name}:{number}"
        if "://" in line or line.startswith(("--index-url", "--extra-index-url", "--find-links")):
            problems.append(
                f"{where}: an address; pins name packages, the machine's configuration says from where"
            )
        if match := PIN.match(line):
            if unhashed:
                problems.append(f"{where}: {unhashed} has no --hash")
            unhashed = match["name"]
            pins[normalised(match["name"])] = match["version"]
        elif "--hash=sha256:" in line:
            unhashed = None
    if unhashed:
        problems.append(f"{path.name}: {unhashed} has no --hash")
    return pins, problems


def names(requirements: list[str]) -> set[str]:
    return {normalised(re.split(r"[\[<>=!~; ]", text, maxsplit=1)[0]) for text in requirements}


def check() -> list[str]:
    """What is wrong with the two locks, one line per finding; empty when all is well."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime, problems = read_lock(ROOT / "requirements.lock")
    development, more = read_lock(ROOT / "requirements-dev.lock")
    problems += more
    wanted = names(project["project"]["dependencies"])
    tools = names(project["dependency-groups"]["dev"])
    for name in sorted(wanted - runtime.keys()):
        problems.append(f"requirements.lock: {name} is missing; run scripts/lock.sh")
    for name in sorted((wanted | tools) - development.keys()):
        problems.append(f"requirements-dev.lock: {name} is missing; run scripts/lock.sh")
    for name, version in runtime.items():
        if development.get(name) != version:
            problems.append(
                f"{name} is {version} in requirements.lock, {development.get(name)} in requirements-dev.lock"
            )
    return problems


if __name__ == "__main__":
    findings = check()
    print("\n".join(findings), file=sys.stderr, end="\n" if findings else "")
    sys.exit(1 if findings else 0)
