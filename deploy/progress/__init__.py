"""The figures that `causal run` shows during its job and at the end, and the rows of console sinks."""
