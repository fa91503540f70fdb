"""Operators on vectors: whole record batches in, whole record batches out.

Every module of this package imports pyarrow and NumPy; the plan imports these modules only if a pipeline has vectors.
"""
