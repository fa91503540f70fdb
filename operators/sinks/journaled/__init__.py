"""Journals of sink tasks, in a file on one host or in objects of a shared store, and the stores built on them."""
