"""The ingest log: batches that sources publish once each, in order, and that every task reads by position."""
