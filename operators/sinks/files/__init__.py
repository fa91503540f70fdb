"""Rows in files of one host: JSON lines, and the journals that make them and other sinks exact."""
