"""Capture of hidden nondeterminism: calls of the clock and of random generators are routed to the causal services."""
