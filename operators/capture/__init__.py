"""Capture of hidden nondeterminism: calls to the clock and to random generators are routed to the causal services."""
