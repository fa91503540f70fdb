"""A stream of NATS JetStream as a source: each subject filter is an input channel, and checkpoints keep sequences."""
