"""The page of metrics while a job runs, for the commands that lead one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def port(text: str) -> int:
    """The port that an option gives.

    Raises:
        argparse.ArgumentTypeError: it is no number of a port.
    """
    if not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text:.20} is no port; give a number up to 65535")
    return int(text)


@contextmanager
def exposed(port: int, job: Path) -> Iterator[None]:
    """Serves the metrics of the job in a directory on that port of 127.0.0.1; 0: nowhere.

    Raises:
        PipelineError: the port cannot be used.
    """
    if not port:
        yield
        return
    from deploy.monitoring.metrics import serve  # prometheus-client slows down the start, and most runs do not need it

    stop = serve(port, job)
    try:
        yield
    finally:
        stop()
