"""What a type checker knows of a pipeline: `builder.py` is checked, not run; a line that must be wrong says so."""
