"""The operator API: `Pipeline` and its streams, and how a pipeline file is loaded."""
