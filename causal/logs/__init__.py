"""Determinant logs: their bytes per task, the deltas that share them, and the bytes that a rollback loses."""
