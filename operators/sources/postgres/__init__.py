"""A source of the changes of tables of a PostgreSQL database."""
