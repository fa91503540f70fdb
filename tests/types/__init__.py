"""What a type checker knows of a pipeline: `builder.py` and `state.py` are checked, not run; a line that must be wrong says so."""
