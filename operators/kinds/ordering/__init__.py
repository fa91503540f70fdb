"""Deterministic order: operators that process their records by event time, in whatever order these arrived."""
