"""The parts that sinks of messages share: the form of a row, and an account that is kept as a log of messages."""
