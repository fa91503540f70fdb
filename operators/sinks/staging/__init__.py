"""Stores in which rows wait until a complete checkpoint covers them, in front of any sink's store.

They implement the guarantee `epoch`.
"""
