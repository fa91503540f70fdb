"""Rows in objects of a shared store, which every host reaches alike."""
