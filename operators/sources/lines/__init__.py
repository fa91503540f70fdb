"""Sources of lines that cannot be read twice: a process next to the job writes them into the ingest log first."""
