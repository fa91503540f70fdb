"""The ingest log: batches that sources publish exactly once, in order, and that tasks read by position."""
