"""A stage that runs elsewhere: what a Triton Python model needs to forward its requests to a pool of other servers.

This package is copied into the model's version folder (see `slo_operator.overlay`) and runs inside the serving
image: it may use the standard library, numpy and what Triton's Python backend brings, and nothing else of ours.
"""
