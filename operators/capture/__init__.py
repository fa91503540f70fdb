"""Hidden nondeterminism: the clock and chance of the process, routed to the causal services inside an operator."""
