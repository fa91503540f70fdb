"""Stores that keep rows in objects of a shared store, which all hosts can access."""
