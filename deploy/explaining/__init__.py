"""`causal explain-divergence`: why a replay differs from its recording, and at which line of user code."""
