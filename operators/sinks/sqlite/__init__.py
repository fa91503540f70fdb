"""Rows in a SQLite file."""
