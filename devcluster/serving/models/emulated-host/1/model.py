"""Publishes what the emulated cores and GPUs did."""

from emulation.triton.host_metrics import HostMetrics as TritonPythonModel

__all__ = ["TritonPythonModel"]
