"""The large assistant's forward pass."""

from emulation.triton.forward import Forward as TritonPythonModel

__all__ = ["TritonPythonModel"]
