"""Prompts as the demo's clients send them: passages of Python's manual, and now and then a whole page of it.

The serving image's calibration holds for these lengths.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pydoc_data.topics import topics

#: Characters per prompt: log-normal around a paragraph …
MEDIAN_CHARACTERS = 640
SIGMA = 0.35
MIN_CHARACTERS = 40
#: … and for a few (below the p99 of all) a page.
PAGE_SHARE = 0.004
PAGE_CHARACTERS = (2500, 4000)


class Prompts:
    """An endless, seeded stream of prompts: the same seed gives the same prompts."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._text = "\n".join(topics[name] for name in sorted(topics))

    def take(self, count: int) -> tuple[str, ...]:
        """The next `count` prompts."""
        return tuple(self.next() for _ in range(count))

    def next(self) -> str:
        """One prompt, MIN_CHARACTERS to the longest page long."""
        length = self._length()
        start = self._random.randrange(len(self._text) - length)
        return self._text[start : start + length]

    def _length(self) -> int:
        if self._random.random() < PAGE_SHARE:
            return self._random.randint(*PAGE_CHARACTERS)
        drawn = round(self._random.lognormvariate(math.log(MEDIAN_CHARACTERS), SIGMA))
        return min(max(drawn, MIN_CHARACTERS), PAGE_CHARACTERS[1])


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
