"""The goals, and the tables of the pages."""
