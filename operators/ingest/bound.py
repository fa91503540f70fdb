"""The bounds of an ingest log: on published but unread data, and on input that is kept for savepoints.

The commit of a batch waits until readers have made room. Spark runs one batch at a time, so a commit that waits slows
the query down but does not make it fail. If nothing is unread, a batch of any size is admitted. The wait ends when
there is room, when another driver takes over, or when the process that requested the commit ends.

Input that only savepoints need never makes a batch wait: instead, the oldest savepoints lose it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from causal.errors import Unavailable
from operators.ingest.contract import Backlog, Segment
from operators.ingest.ingest_log import IngestLog
from operators.records.seconds import seconds_of

NOTED_EVERY_S = 1.0
KEPT_EVERY = 8
"""The number of batches after which the bound on kept input is applied again."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of one log.

    Attributes:
        unread_bytes_max: the maximum number of published but unread bytes.
        kept_bytes_max: the number of bytes that may be published after a savepoint before its input is not kept.
    """

    unread_bytes_max: int = 1 << 30
    kept_bytes_max: int = 1 << 30


BOUNDS = LogBounds()
"""The bounds that are the defaults of the settings."""


def await_room(
    log: IngestLog, batch: int, token: int, segments: Sequence[Segment], bytes_max: int, ended: Callable[[], bool]
) -> None:
    """Wait until the batch may be published.

    Args:
        segments: the segments that were written for the batch.
        bytes_max: the maximum number of unread bytes, including this batch, unless this batch alone exceeds it.
        ended: returns whether the process that requested the commit has ended.
    Raises:
        Fenced: a newer driver has taken over.
        Unavailable: `ended()` returned true.
    """
    if log.manifest(batch) is not None:  # the batch is published already, and publishing it again changes nothing
        return
    since_ns, noted_at = 0, 0.0
    while True:
        unread, coming = log.room_taken(batch, segments)
        if not unread or unread + coming <= bytes_max:
            break
        log.check_token(token)
        if ended():
            raise Unavailable(f"{log.where}: batch {batch} was waiting for space when the driver ended")
        now = time.monotonic()
        if not since_ns:
            since_ns = time.monotonic_ns()
            _say(
                log,
                (
                    f"batch {batch} waits: {unread:,} bytes are published but not yet read (ingest_bytes_max "
                    f"{bytes_max:,})"
                ),
            )
        if now >= noted_at + NOTED_EVERY_S:
            noted_at = now
            log.note_backlog(Backlog(unread, bytes_max, batch, since_ns))
        time.sleep(log.look_s)
    log.note_backlog(Backlog(unread + coming, bytes_max, batch, 0))
    if since_ns:
        _say(log, f"batch {batch} resumes after {seconds_of(time.monotonic_ns() - since_ns):.1f} s: space is available")


def bound_kept(log: IngestLog, batch: int, bytes_max: int) -> None:
    """Release the input of savepoints since which more than `bytes_max` was published, after every eighth batch.

    Args:
        batch: the batch that was published last.
    """
    if batch % KEPT_EVERY:
        return
    savepoints = log.exceeding(batch, bytes_max)
    log.forget(savepoints)
    for savepoint in savepoints:
        _say(
            log,
            f"the job can no longer be rolled back to savepoint {savepoint}: more than {bytes_max:,} bytes were "
            "published since then (kept_input_bytes_max)",
        )


def orphaned() -> Callable[[], bool]:
    """Return a function that reports whether this process's current parent has ended."""
    parent = os.getppid()
    return lambda: os.getppid() != parent


def _say(log: IngestLog, line: str) -> None:
    print(f"source {log.name!r}: {line}", file=sys.stderr, flush=True)
