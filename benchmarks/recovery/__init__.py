"""Benchmarks of failures, of state that must be restored, and of input that is hard to process."""
