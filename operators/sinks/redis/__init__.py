"""Rows in streams of a Redis server."""
