"""Benchmarks of connectors: Kafka compared with other engines, changes of a database, lakehouses."""
