"""Token ids → token ids, timed like a model on an A100."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tokens import OUTPUT_TOKENS
from .instance import Instance, input_array, response


class Forward(Instance):
    """INPUT_IDS int32 [b, n], LENGTH int32 [b, 1] → OUTPUT_IDS int32 [b, OUTPUT_TOKENS].

    The load takes GPU memory and fails when it does not fit. The answer quotes the end of the prompt.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        super().initialize(args)
        gpu = self.host.gpu_of(self.name)
        self._model = self.profile.forward_model(self.model)
        try:
            self.account.reserve(gpu, self._model.memory_mib, self.name, self.host.gpus[gpu])
        except RuntimeError:
            self.account.leave()
            raise
        self._stage = self.stage(1 + gpu)
        time.sleep(self._model.load_seconds)  # reading the weights

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One GPU execution for all requests together."""
        inputs = [(input_array(request, "INPUT_IDS"), input_array(request, "LENGTH")) for request in requests]
        batch = sum(len(ids) for ids, _ in inputs)
        with self._stage.running(self._model.busy_share.at(batch)):
            responses = [response(OUTPUT_IDS=_answer(ids, lengths.reshape(-1))) for ids, lengths in inputs]
            self._stage.until(self.with_faults(self._model.seconds.at(batch)))
        return responses


def _answer(ids: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    """The last OUTPUT_TOKENS tokens before the length, [b, n], [b] → [b, OUTPUT_TOKENS]."""
    start = np.maximum(lengths - OUTPUT_TOKENS, 0)
    columns = start[:, None] + np.arange(OUTPUT_TOKENS)
    return np.take_along_axis(ids, np.minimum(columns, ids.shape[1] - 1), axis=1)
