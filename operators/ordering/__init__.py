"""Deterministic order: operators that see their records by event time, whatever arrived when."""
