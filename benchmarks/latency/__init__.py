"""The benchmark of latency, as a reader of the sink sees it."""
