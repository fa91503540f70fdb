"""A reader of a slow system that works in a thread, ahead of its task, which therefore never waits.

The thread performs an ordinary reader that may wait, and keeps up to `READS_AHEAD` of its reads, each of at most
`RECORDS_AT_ONCE` records. While the system is unavailable, it reads again with growing pauses; no record is skipped.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from causal.errors import Unavailable
from causal.records.rows import listed
from causal.storage.shared import RETRY_S_MAX, RETRY_S_MIN
from operators.source import PartitionReader, Read

READS_AHEAD = 4
RECORDS_AT_ONCE = 8192
POLL_S, POLL_QUIET_S, QUIET_S = 0.002, 0.02, 1.0
"""The pauses between two reads of a partition that has records, and of one that had none for `QUIET_S`."""
CLOSE_WITHIN_S = 2.0


class AheadReader:
    """A `PartitionReader` that immediately returns what its thread has read.

    Args:
        connect: returns the reader that may wait; called once, in the thread.
        name: the name of the source and its partition, for messages.
    """

    def __init__(self, connect: Callable[[], PartitionReader], name: str) -> None:
        self._connect = connect
        self._name = name
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._reader: PartitionReader | None = None
        self._closed = False
        self._problem: Exception | None = None
        """The error that ended the thread."""
        self._unavailable: Unavailable | None = None
        self._since_s = 0.0
        """The moment since which the system is unavailable."""
        self._reads: deque[Read] = deque()
        self._taken = 0
        """The number of records of the first of `_reads` that the task has taken."""
        self._position = -1
        """The position of the record after them; -1 before the first request."""
        self._ahead = -1
        """The position that the thread reads next."""
        self._completed = 0
        self._came_s = time.monotonic()

    # -- the methods that the task calls -------------------------------------------------------------------

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` records that the thread has read, or None while there are none.

        Raises:
            CausalError: the error with which the thread has ended.
            Unavailable: the system does not answer.
        """
        with self._changed:
            if position != self._position:
                self._position = self._ahead = position
                self._reads.clear()
                self._taken = 0
                self._changed.notify()
            self._start()
            if self._reads:
                return self._next(count_max)
            if self._problem is not None:
                raise self._problem
            if self._unavailable is not None:
                raise self._unavailable
            return None

    def ready_in_s(self, position: int) -> float:
        """Return 0 if records were read ahead, or else the pause until the next read is worthwhile."""
        if self._reads and position == self._position:
            return 0.0
        return POLL_S if time.monotonic() - self._came_s < QUIET_S else POLL_QUIET_S

    def completed(self, position: int) -> None:
        """Pass on that a complete checkpoint covers everything before `position`."""
        with self._changed:
            self._completed = position
            self._changed.notify()

    def measured(self, position: int) -> tuple[int, int] | None:
        """Return how much the thread has read, and of how much, if its reader knows."""
        measure = getattr(self._reader, "measured", None)
        return None if measure is None else measure(position)

    def counters(self) -> dict[str, int | float]:
        """Return how long the system has been unavailable."""
        with self._changed:
            waited_s = 0.0 if self._unavailable is None else time.monotonic() - self._since_s
        return {"ingest_store_waiting_s": round(waited_s, 1)}

    def close(self) -> None:
        """Stop the thread; a request that does not finish soon is abandoned."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN_S)

    def _start(self) -> None:
        # The thread is started only now, because the process may fork before the first request.
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name=f"read-{self._name}", daemon=True)
            self._thread.start()

    def _next(self, count_max: int) -> Read:
        self._came_s = time.monotonic()
        first, start = self._reads[0], self._taken
        count = min(count_max, len(first.records) - start)
        self._position += count
        self._taken += count
        last = self._taken == len(first.records)
        if last and not first.ended:  # an end is repeated, as often as it is asked for
            self._reads.popleft()
            self._taken = 0
            self._changed.notify()
        marks = first.marks[start : start + count]
        return replace(
            first, records=listed(first.records)[start : start + count], ended=first.ended and last, marks=marks
        )

    # -- the code that runs in the thread ------------------------------------------------------------------

    def _work(self) -> None:
        pause_s = RETRY_S_MIN
        try:
            while not self._closed:
                try:
                    wait_s = self._step()
                    self._unavailable, pause_s = None, RETRY_S_MIN
                except Unavailable as problem:
                    self._report(problem)
                    wait_s, pause_s = pause_s, min(2 * pause_s, RETRY_S_MAX)
                if wait_s:
                    self._wait(wait_s)
        except Exception as problem:  # the next read raises it
            with self._changed:
                self._problem = problem
        finally:
            if self._reader is not None:
                self._reader.close()

    def _step(self) -> float:
        """Read once, if there is room; return the time to wait before the next step."""
        if self._reader is None:
            self._reader = self._connect()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room())
            position, completed = self._ahead, self._completed
        if self._closed:
            return 0.0
        self._reader.completed(completed)
        read = self._reader.read(position, RECORDS_AT_ONCE)
        if read is None:
            return self._reader.ready_in_s(position)
        with self._changed:
            if position == self._ahead:  # the task has not returned to another position meanwhile
                self._reads.append(read)
                self._ahead += len(read.records)
        return 0.0

    def _has_room(self) -> bool:
        return not self._reads or (len(self._reads) < READS_AHEAD and not self._reads[-1].ended)

    def _wait(self, span_s: float) -> None:
        """Wait, but not longer than until the task returns to another position."""
        with self._changed:
            ahead = self._ahead
            self._changed.wait_for(lambda: self._closed or self._ahead != ahead, span_s)

    def _report(self, problem: Unavailable) -> None:
        if self._unavailable is None:
            self._since_s = time.monotonic()
            print(f"{self._name} waits: {problem}", file=sys.stderr, flush=True)
        self._unavailable = problem
