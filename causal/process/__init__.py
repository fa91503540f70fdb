"""The life of one process: its clock, signals, logs, descriptors and memory, and how it starts and ends."""
