"""Connections between processes and hosts: the sockets, the keys that protect them, and the hosts that may join."""
