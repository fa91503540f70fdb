"""The programs of the cookbook in docs/cookbook: each file is a complete job."""
