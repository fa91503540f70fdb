"""Runs jobs for the benchmarks, watches their processes, and writes what was measured."""
