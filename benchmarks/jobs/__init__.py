"""Pipelines that the benchmarks run, and the bare job they are compared with."""
