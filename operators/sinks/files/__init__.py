"""Rows in files on one host: JSON lines, and rows that wait for their checkpoint."""
