"""Rows handed to something without transactions: a function, the console, a web service."""
