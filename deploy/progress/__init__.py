"""The figures that `causal run` shows while its job runs and at its end, and the rows of console sinks."""
