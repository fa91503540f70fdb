"""Determinant logs: what is kept of which task, the deltas that share it, what a rollback loses."""
