"""Lines that come steadily are published while they come."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import Any, cast

from operators.sources import StdinSource

LINES_MAX = 3_000


class Published:
    """A writer that notes that something was published, at which the input ends."""

    note = ""

    def __init__(self) -> None:
        self.some = threading.Event()

    def publish(self, lines: Any, note: str) -> None:
        self.some.set()

    def end(self) -> None:
        """Do nothing, because nothing is stored."""


def test_lines_are_published_although_more_keep_coming() -> None:
    reading, writing = os.pipe()
    published, written = Published(), 0

    def write() -> None:
        nonlocal written
        with os.fdopen(writing, "wb", 0) as pipe:
            while written < LINES_MAX and not published.some.is_set():
                pipe.write(b"a line\n")
                written += 1
                time.sleep(0.001)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        StdinSource()._copy(cast(Any, published), partial(os.read, reading, 1 << 16), reading, None, 0)
    finally:
        thread.join()
        os.close(reading)
    assert written < LINES_MAX
