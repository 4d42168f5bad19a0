"""Prompt → token ids, on the emulated cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .instance import input_array, response
from .text import TextInstance


class Preprocessing(TextInstance):
    """PROMPT bytes [b, 1] → INPUT_IDS int32 [b, MAX_TOKENS], LENGTH int32 [b, 1]."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Tokenizes for real; the cores are busy for the time of all prompts, one after the other."""
        responses = []
        with self._stage.running(1.0):
            seconds = 0.0
            for request in requests:
                prompts = input_array(request, "PROMPT").reshape(-1)
                rows = [self._tokenizer.encode(prompt.decode("utf-8", "replace")) for prompt in prompts]
                lengths = np.array([[length] for _, length in rows], np.int32)
                responses.append(response(INPUT_IDS=np.stack([ids for ids, _ in rows]), LENGTH=lengths))
                seconds += sum(self.profile.preprocessing.seconds(length) for _, length in rows)
            self._stage.until(self.with_faults(seconds))
        return responses
