"""What pre- and postprocessing do alike. Apart, since only they need a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping

from ..tokens import PromptTokenizer
from .instance import Instance


class TextInstance(Instance):
    """An instance that turns text into tokens or back, on the emulated cores."""

    def initialize(self, args: Mapping[str, str]) -> None:
        super().initialize(args)
        self._tokenizer = PromptTokenizer()
        self._stage = self.stage()
