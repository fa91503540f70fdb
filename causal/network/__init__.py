"""Connections between processes and hosts: the sockets, the keys that guard them, and who may join."""
