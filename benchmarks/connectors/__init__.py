"""Benchmarks of connectors: Kafka beside other engines, changes of a database, lakehouses."""
