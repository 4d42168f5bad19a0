"""Prompts: real English text of long-tailed lengths, from what every Python installation carries.

Lengths in words are log-normal (median 60, sigma 0.8: mean 83, one in a hundred above 380), as prompt
lengths of public assistant traces are. The text is Python's language reference (`pydoc_data`), or
docstrings of the standard library where a distribution leaves that out.
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
from collections.abc import Sequence

_MODULES = (
    "argparse asyncio collections concurrent.futures configparser contextlib csv dataclasses "
    "datetime decimal difflib doctest email enum fractions functools heapq html http.client "
    "http.server inspect ipaddress itertools json locale logging mailbox math multiprocessing "
    "optparse os pathlib pickle pprint queue random re shutil socket socketserver sqlite3 ssl "
    "statistics string struct subprocess tarfile tempfile textwrap threading turtle typing "
    "unittest urllib.parse uuid warnings wave xml.dom zipfile "
)


def prompts(
    count: int, *, seed: int, median_words: float = 60, sigma: float = 0.8, longest_words: int = 800
) -> tuple[str, ...]:
    """`count` different prompts; the same seed gives the same ones on the same Python."""
    words = _words()
    rng = random.Random(f"{seed}/prompts")
    found = []
    for _ in range(count):
        length = round(median_words * rng.lognormvariate(0.0, sigma))
        length = max(4, min(length, longest_words))
        begin = rng.randrange(max(1, len(words) - length))
        found.append(" ".join(words[begin : begin + length]))
    return tuple(found)


def infer_bodies(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Request bodies of Triton's HTTP protocol: one input PROMPT, BYTES [1,1]; asked for is TEXT."""
    return tuple(
        json.dumps(
            {
                "inputs": [{"name": "PROMPT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}],
                "outputs": [{"name": "TEXT"}],
            }
        ).encode()
        for text in texts
    )


def _words() -> list[str]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
        return " ".join(topics[name] for name in sorted(topics)).split()
    except ImportError:
        return " ".join(_docstrings()).split()


def _docstrings() -> list[str]:
    found: list[str] = []
    for name in _MODULES.split():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        members = [module, *(value for _, value in sorted(vars(module).items(), key=lambda item: item[0]))]
        found.extend(text for text in map(inspect.getdoc, members) if text)
    return found
