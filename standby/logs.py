"""What a server of the job writes into its log: one line per event, and nothing about a line that could not be written.

A log may lie on the disk that is full; a traceback about that, in whatever comes next, would help nobody.
"""

from __future__ import annotations

import logging
from typing import TextIO


def begin(stream: TextIO) -> None:
    """Log to `stream` from now on, in this process."""
    logging.raiseExceptions = False
    logging.basicConfig(stream=stream, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
