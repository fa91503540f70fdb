"""The ingest log: batches that sources publish once each, in order, and that tasks read by position."""
