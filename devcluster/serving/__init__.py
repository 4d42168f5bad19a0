"""The dev cluster's serving image: a real Triton on the CPU whose models are timed like GPU models."""
