"""A Kafka topic as a source: each partition is an input channel, and checkpoints keep the offsets."""
