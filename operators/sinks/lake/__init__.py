"""Sinks that write tables of a lakehouse: Delta Lake and Apache Iceberg."""
