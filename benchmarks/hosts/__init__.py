"""Benchmarks of jobs of several hosts: network namespaces on one machine."""
