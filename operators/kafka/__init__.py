"""The clients of a Kafka cluster, for its source and its sink: addresses, options, life, and remedies for errors."""
