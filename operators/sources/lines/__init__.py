"""Sources of lines that cannot be read twice: a process next to the job first writes them to the ingest log."""
