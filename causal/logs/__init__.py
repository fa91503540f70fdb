"""Determinant logs: each task's bytes, the deltas that share them, and the bytes that a rollback loses."""
