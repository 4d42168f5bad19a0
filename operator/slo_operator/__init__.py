"""The operator around the tuner: observe → decide → act, and the `slo` command."""

__version__ = "0.1.0.dev0"
