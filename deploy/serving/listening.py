"""The address at which a server of this machine listens."""

from __future__ import annotations

import argparse
import os
import socket

from causal.errors import PipelineError
from deploy.serving.host_names import LOOPBACK

ADDRESS = "127.0.0.1"


def is_of_this_machine(host: str) -> bool:
    """Return whether an address to listen on can only be reached from this machine."""
    return host in LOOPBACK or f"[{host}]" in LOOPBACK


def port_of(text: str) -> int:
    """Parse a port."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 1 to 65535")
    return int(text)


def listen(host: str, port: int | None, default: int) -> socket.socket:
    """Return a socket that listens; without a port, on the default one, or on a free one if that is in use.

    Accepted connections inherit `TCP_NODELAY` from it.  asyncio sets this option only if the socket names its protocol,
    and without the option each answer would wait 40 ms for an acknowledgement.

    Raises:
        PipelineError: the requested port or the address cannot be used.
    """
    reason = ""
    for tried in (default, 0) if port is None else (port,):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, tried), family=family)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except OSError as problem:
            reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
    if port is None:
        raise PipelineError(f"--host {host} cannot be used: {reason}; use an address of this machine")
    raise PipelineError(f"--port {port} cannot be used: {reason}; use another port")
