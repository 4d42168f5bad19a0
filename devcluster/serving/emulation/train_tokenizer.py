"""Train the tokenizer at image build: `python -m emulation.train_tokenizer OUT.json`.

The text is Python's own reference manual, which every Python carries for `help()`.
"""

from __future__ import annotations

import sys
from pydoc_data.topics import topics

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from .tokens import SPECIAL_TOKENS

VOCABULARY = 4096


def train() -> Tokenizer:
    """A byte-level BPE: any text can be encoded, and comes back unchanged."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    return tokenizer


if __name__ == "__main__":
    train().save(sys.argv[1])
