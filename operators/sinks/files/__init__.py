"""Sinks that write rows to files on one host, or to objects of a shared store, as JSON lines."""
