"""Answers questions about keyed state at a checkpoint, for `causal serve` and `causal state`."""
