"""A sink that writes rows to a stream of NATS JetStream."""
