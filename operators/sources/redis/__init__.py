"""Redis streams as a source: each stream is an input channel, and checkpoints keep the ids of entries."""
