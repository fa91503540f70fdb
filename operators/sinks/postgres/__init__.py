"""A sink that writes rows to a table of a PostgreSQL database."""
