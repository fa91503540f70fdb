"""Joins of two streams within an interval or a window, of a stream with a table's rows, and of two tables."""
