"""From counters to times, from times to the one bottleneck."""
