"""Rows in files of one host: JSON lines, and rows that wait for their checkpoint."""
