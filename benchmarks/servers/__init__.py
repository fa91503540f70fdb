"""Servers that tests and benchmarks start: processes with directories of their own."""
