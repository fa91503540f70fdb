"""A sink that writes rows to a SQLite file."""
