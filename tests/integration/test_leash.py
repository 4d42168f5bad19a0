"""A killed test run leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.leash import LEASH
from tests.integration.triton_image import root_folder

REPOSITORY = Path(__file__).resolve().parents[2]
STARTS_A_TRITON = """
import pathlib, sys, time
from tests.integration.triton_image import running_server
with running_server(pathlib.Path(sys.argv[1]), {"EMULATION_PROFILE": "small"}):
    print("ready", flush=True)
    time.sleep(600)
"""
STARTS_A_SLEEP = """
import subprocess, sys, time
subprocess.Popen(sys.argv[1:])
time.sleep(600)
"""


def killed_when_ready(*arguments: str) -> None:
    """Run Python with a program that starts something, and kill it without a chance to clean up."""
    process = subprocess.Popen([sys.executable, "-c", *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def running(mark: str) -> list[str]:
    """Command lines with this text in them, without zombies, which have none."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            lines.append(line)
    return lines


def gone(mark: str, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not running(mark)


@pytest.mark.integration
def test_a_server_on_a_leash_goes_with_a_killed_test_run() -> None:
    seconds = f"6{os.getpid()}"
    killed_when_ready(STARTS_A_SLEEP, *LEASH, "sh", "-c", f"echo ready; exec sleep {seconds}")
    assert gone(f"sleep {seconds} ")


@pytest.mark.triton
@pytest.mark.timeout(900)  # the image may have to be built first
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the image's root file system is entered by chroot")
def test_triton_and_its_model_processes_go_with_a_killed_test_run(tmp_path: Path) -> None:
    before = set(Path("/proc").glob("[0-9]*"))
    killed_when_ready(STARTS_A_TRITON, str(tmp_path))
    deadline = time.monotonic() + 20

    def left() -> list[str]:
        found = []
        for process in set(Path("/proc").glob("[0-9]*")) - before:
            try:
                if (process / "root").readlink() == root_folder():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found

    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == []
