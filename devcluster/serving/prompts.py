"""Prompts as the demo's clients send them: passages of Python's manual, and now and then a whole page of it.

The calibration of the serving image holds for these lengths, so load generators and tests should use them.
"""

from __future__ import annotations

import math
import random
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
