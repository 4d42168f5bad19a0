"""Writes the files that are generated from the code, or checks that they are what the code says.

`make generate` writes, `make check` compares.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: each takes --check and then writes nothing; exit code 1 says that its file is stale
GENERATORS = (
    ("-m", "slo_operator.api.generate"),
    ("scripts/generate_api_docs.py",),
)


def main(arguments: list[str]) -> int:
    """Run all generators with the given arguments; return 1 when one of them failed."""
    codes = [
        subprocess.run([sys.executable, *generator, *arguments], cwd=ROOT, check=False).returncode
        for generator in GENERATORS
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
