"""A sink that writes rows to a topic of a Kafka cluster."""
