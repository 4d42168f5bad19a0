"""Prompt formatting and the tokenizer: real work on real text."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

#: All prompts are padded to this length, so that requests have one shape and Triton can batch them.
MAX_TOKENS = 1024
#: Length of the emulated models' answers.
OUTPUT_TOKENS = 64
PAD, SYSTEM, USER, ASSISTANT, END = SPECIAL_TOKENS = (
    "<|pad|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
)

_DEFAULT_FILE = "/opt/emulation/tokenizer.json"
_SYSTEM_PROMPT = (
    "You answer questions about the Python language. Be brief, be correct, and say so when you do not know."
)


class PromptTokenizer:
    """The assistant's tokenizer, from the file EMULATION_TOKENIZER (made by `train_tokenizer`)."""

    def __init__(self, path: Path | None = None) -> None:
        file = path or Path(os.environ.get("EMULATION_TOKENIZER") or _DEFAULT_FILE)
        self._tokenizer = Tokenizer.from_file(str(file))
        pad = self._tokenizer.token_to_id(PAD)
        if pad is None:
            raise ValueError(f"{file}: no token {PAD}: train it with emulation.train_tokenizer")
        self.pad = int(pad)

    def encode(self, prompt: str) -> tuple[NDArray[np.int32], int]:
        """Token ids of the formatted prompt, int32 [MAX_TOKENS] padded at the end, and their number."""
        ids = self._tokenizer.encode(format_prompt(prompt)).ids[:MAX_TOKENS]
        padded = np.full(MAX_TOKENS, self.pad, np.int32)
        padded[: len(ids)] = ids
        return padded, len(ids)

    def decode(self, ids: NDArray[np.int32]) -> str:
        """Text of token ids int32 [n]; special tokens are left out."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))


def format_prompt(prompt: str) -> str:
    """The chat template. Special tokens inside the user's text are defused."""
    clean = prompt.replace("<|", "< |").strip()
    return f"{SYSTEM}{_SYSTEM_PROMPT}{END}{USER}{clean}{END}{ASSISTANT}"
