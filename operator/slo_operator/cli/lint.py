"""`slo lint`: reads configurations, prints what is wrong with them. Never changes a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from slo_operator.cli.diagnose import InputError, objective
from slo_operator.cli.main import BAD_INPUT, NO, OK
from slo_operator.offline.lint import ERROR, Finding
from slo_operator.offline.lint_repository import lint_files
from slo_operator.offline.repository import files_of


def run(options: argparse.Namespace) -> int:
    """Carry out the command; return its exit code."""
    try:
        targets = [objective(text).target_s for text in options.slo]
        found: list[Finding] = []
        for path in map(Path, options.path):
            found += lint_files(_files(path), min(targets, default=None), options.cpus, options.shm)
    except InputError as error:
        print(f"slo lint: {error}", file=sys.stderr)
        return BAD_INPUT
    if options.output == "json":
        print(json.dumps([one.to_json() for one in found], indent=1))
    else:
        _show(found)
    return NO if any(one.severity == ERROR for one in found) else OK


def _files(path: Path) -> list[Path]:
    try:
        files = files_of(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not files:
        raise InputError(f"{path}: no config.pbtxt in it or in a folder of it")
    return files


def _show(found: Sequence[Finding]) -> None:
    for one in found:
        place = f"{one.file}:{one.line}" if one.line else one.file
        print(f"{place}: {one.severity}: {one.message} [{one.code}]")
        if one.suggestion:
            print(f"    {one.suggestion}")
    errors = sum(one.severity == ERROR for one in found)
    print(f"{errors} errors, {len(found) - errors} warnings" if found else "nothing found")
