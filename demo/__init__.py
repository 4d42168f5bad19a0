"""The demo: a real cluster, a real Triton, one InferenceSLO, and the repair of its latency seen from outside.

`python -m demo --help`; `make demo` runs it with its goals.
"""
