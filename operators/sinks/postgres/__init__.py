"""Rows in a table of a PostgreSQL database."""
