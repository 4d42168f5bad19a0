"""Token ids → text, on the emulated cores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..tokens import PromptTokenizer
from .instance import Instance, input_array, response


class Postprocessing(Instance):
    """OUTPUT_IDS int32 [b, n] → TEXT bytes [b, 1], a JSON object with the answer."""

    def initialize(self, args: Mapping[str, str]) -> None:
        super().initialize(args)
        self._tokenizer = PromptTokenizer()
        self._stage = self.stage()

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
