"""Prompts as the demo's clients send them: passages of Python's manual with long-tailed lengths.

The calibration of the serving image holds for these lengths, so load generators and tests should use them.
"""

from __future__ import annotations

import math
import random
from pydoc_data.topics import topics

#: Characters per prompt: log-normal, clipped.
MEDIAN_CHARACTERS = 640
SIGMA = 0.55
MIN_CHARACTERS = 40
MAX_CHARACTERS = 4000


class Prompts:
    """An endless, seeded stream of prompts: the same seed gives the same prompts."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._text = "\n".join(topics[name] for name in sorted(topics))

    def next(self) -> str:
        """One prompt, MIN_CHARACTERS to MAX_CHARACTERS long."""
        drawn = self._random.lognormvariate(math.log(MEDIAN_CHARACTERS), SIGMA)
        length = round(min(max(drawn, MIN_CHARACTERS), MAX_CHARACTERS))
        start = self._random.randrange(len(self._text) - length)
        return self._text[start : start + length]
