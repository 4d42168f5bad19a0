"""Token ids → text, on the emulated cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from .instance import input_array, response
from .text import TextInstance


class Postprocessing(TextInstance):
    """OUTPUT_IDS int32 [b, n] → TEXT bytes [b, 1], a JSON object with the answer."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Detokenizes and serialises for real; the cores are busy for the time of all rows."""
        responses = []
        with self._stage.running(1.0):
            seconds = 0.0
            for request in requests:
                rows = input_array(request, "OUTPUT_IDS")
                texts = [[_serialise(self._tokenizer.decode(ids), len(ids))] for ids in rows]
                responses.append(response(TEXT=np.array(texts, np.object_)))
                seconds += sum(self.profile.postprocessing.seconds(len(ids)) for ids in rows)
            self._stage.until(self.with_faults(seconds))
        return responses


def _serialise(text: str, tokens: int) -> bytes:
    return json.dumps({"text": text, "tokens": tokens}, ensure_ascii=False).encode()
