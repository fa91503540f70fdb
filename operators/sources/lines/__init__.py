"""Sources of lines that cannot be read twice: a process beside the job writes them into the ingest log first."""
