"""The entry of the `causal` command: a signal ends it once, in good order and without a traceback, whenever it comes.

While a job runs, `deploy.local` takes the signals; this is for the moments before and after.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENOUGH_S = 5.0
"""For what cleans up; until then a second signal does not cut it short."""

_came_s: list[float] = []


def main() -> int:
    """Run the command; returns its exit status, 128 + the signal's number if it was interrupted."""
    for number in SIGNALS:
        signal.signal(number, _end)
    try:
        from deploy import cli  # takes a moment, in which people change their minds

        return cli.main()
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the interpreter ends, and has nothing left to clean up


def _end(number: int, frame: FrameType | None) -> None:
    now_s = time.monotonic()
    if not _came_s or now_s - _came_s[-1] >= ENOUGH_S:
        _came_s.append(now_s)
        raise SystemExit(128 + number)
