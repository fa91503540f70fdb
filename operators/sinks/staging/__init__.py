"""Rows that wait until a complete checkpoint covers them, in front of the store of any sink (guarantee `epoch`)."""
