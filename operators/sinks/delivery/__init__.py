"""Sinks that deliver rows to targets without transactions: a function, the console, a web service."""
