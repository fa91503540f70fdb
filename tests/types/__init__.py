"""The types that mypy finds in a pipeline: the files are checked, not run; a line that must be wrong says so."""
