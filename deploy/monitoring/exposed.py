"""The metrics page of a running job, for the commands that run one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from causal.errors import PipelineError

_LISTEN = re.compile(
    r"(?P<six>[^\[\]]*:[^\[\]]*:[^\[\]]*)|(?:\[(?P<bracketed>[^\]]*)\]|(?P<four>[^:\[\]]*))(?::(?P<port>[^:]*))?"
)
"""An IPv6 address that is followed by a port must be in brackets; without brackets, the whole text is the address."""


def port(text: str) -> int:
    """Parse the port in an option.

    Raises:
        argparse.ArgumentTypeError: the text is not a port number.
    """
    if not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text:.20} is not a port; use a number up to 65535")
    return int(text)


def listening(text: str) -> tuple[str, int | None]:
    """Parse the address and optional port in `--metrics-listen`.

    Raises:
        argparse.ArgumentTypeError: the text is not an address.
    """
    match = _LISTEN.fullmatch(text)
    address = (match["six"] or match["bracketed"] or match["four"]) if match else ""
    try:
        ip_address(address)
    except ValueError:
        wrong = f"{text:.80} is not an address; use one such as 0.0.0.0:9464 or [::1]:9464"
        raise argparse.ArgumentTypeError(wrong) from None
    number = match["port"] if match else None
    return address, None if number is None else port(number)


def add_options(parser: argparse.ArgumentParser, number: Callable[[str], int] = int) -> None:
    """Add the options for the metrics page to a parser.

    Args:
        number: a function that parses the port; `int` suffices if the job's settings are checked anyway.
    """
    parser.add_argument("--metrics-port", type=number, metavar="PORT", help="Prometheus page on 127.0.0.1")
    parser.add_argument(
        "--metrics-listen", type=listening, metavar="ADDRESS:PORT", help="Prometheus page at another address"
    )


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the metrics page's settings from the command line.

    Raises:
        PipelineError: an address has no port, or two ports are specified.
    """
    at: tuple[str, int | None] | None = getattr(arguments, "metrics_listen", None)
    number: int | None = getattr(arguments, "metrics_port", None)
    if at is None:
        return {} if number is None else {"metrics_port": number}
    address, own = at
    if own is None and number is None:
        raise PipelineError(f"--metrics-listen {address} has no port; use --metrics-listen {_joined(address)}:9464")
    if None not in (own, number) and own != number:
        raise PipelineError(f"--metrics-listen has port {own}, --metrics-port is {number}; use one of them")
    return {"metrics_listen": address, "metrics_port": number if own is None else own}


def _joined(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@contextmanager
def exposed(address: str, port: int, job: Path) -> Iterator[None]:
    """Serve the metrics of the job in a directory at this address and port; do nothing if the port is 0.

    Raises:
        PipelineError: the address or the port cannot be used.
    """
    if not port:
        yield
        return
    from deploy.monitoring.metrics import serve  # imports prometheus-client, which is slow and seldom needed

    stop = serve(address, port, job)
    try:
        yield
    finally:
        stop()
