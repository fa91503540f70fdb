"""Operators on vectors, which receive and return whole record batches.

Every module of this package imports pyarrow and NumPy; the plan imports these modules only if a pipeline has vectors.
"""
