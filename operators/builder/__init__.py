"""The operator API: `Pipeline` and its streams, and the loading of pipeline files."""
