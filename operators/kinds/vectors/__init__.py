"""Operators on vectors: whole record batches in, whole record batches out.

Every module in here imports pyarrow and NumPy; the plan imports them where a pipeline has vectors.
"""
