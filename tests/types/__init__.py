"""What a type checker knows of a pipeline: the files are checked, not run; a line that must be wrong says so."""
