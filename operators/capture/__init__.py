"""Capture of hidden nondeterminism: the process's clock and chance, routed to the causal services in an operator."""
