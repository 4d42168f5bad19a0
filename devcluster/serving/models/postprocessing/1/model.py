"""Detokenizer and serialiser."""

from emulation.triton.postprocessing import Postprocessing as TritonPythonModel

__all__ = ["TritonPythonModel"]
