"""Benchmarks of records per second and of what a record costs."""
