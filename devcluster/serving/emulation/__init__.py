"""What stands in for the host's cores and the GPUs under a real Triton.

Triton, its backends, queues, batching, metrics and control are real. Emulated are only times and
occupancy: how long a stage takes, how stages slow each other on shared cores and GPUs, and how much
GPU memory a loaded copy takes. `calibration.toml` is the one place that holds the numbers.
"""
