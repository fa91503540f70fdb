"""Causal logging and recovery of one task, and the shell that runs it."""
