"""Prompt formatting and tokenizer."""

from emulation.triton.preprocessing import Preprocessing as TritonPythonModel

__all__ = ["TritonPythonModel"]
