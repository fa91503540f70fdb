"""Stores in which rows wait for a complete checkpoint, in front of any sink's store (guarantee `epoch`)."""
