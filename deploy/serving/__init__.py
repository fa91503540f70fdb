"""Answers questions about the state of a job over HTTP, for `causal serve` and `causal ui`."""
