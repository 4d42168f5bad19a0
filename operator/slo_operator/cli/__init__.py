"""The `slo` command, also `kubectl slo`: what the operator saw and did, readable."""
