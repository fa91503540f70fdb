"""Sources of messages that a server sends once: a process next to the job first writes them to the ingest log."""
