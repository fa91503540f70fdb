"""A reader of a slow ingest log on its own thread, ahead of the partition's reader, which therefore never waits.

The amount of data that is read ahead is bounded: a few manifests, and segments up to `AHEAD_BYTES` (at least one).
While the log is unavailable, the thread repeats its request with growing pauses, and the partition's reader returns
nothing; no row is skipped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from causal.errors import Unavailable
from causal.storage.shared import RETRY_S_MAX, RETRY_S_MIN
from operators.ingest.contract import Backlog, Manifest, ReadableLog, Segment

AHEAD_BYTES = 64 << 20
MANIFESTS_MAX = 16
LOOK_S, LOOK_S_MIN = 0.1, 0.01
"""The time between two looks for the next manifest."""
REPORT_S = 1.0
"""The time between two looks at the backlog."""
FOLLOWS_S = 10.0
"""The time without the next manifest after which it is checked that it can still come."""
CLOSE_WITHIN_S = 5.0


class ReadAhead:
    """A log for `IngestReader`, whose methods immediately return what the thread has read.

    Args:
        connect: returns the log; called once, on the thread.
        channels, name, where: the values of the log's attributes.
        reports: whether the backlog will be requested.
    """

    segments_ahead = 8

    def __init__(
        self, connect: Callable[[], ReadableLog], channels: int, name: str, where: str, reports: bool = False
    ) -> None:
        self.channels = channels
        self.name = name
        self.where = where
        self._connect = connect
        self._reports = reports
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._problem: Exception | None = None
        self._since_s: float | None = None
        """The moment since which requests fail."""
        self._manifests: deque[Manifest] = deque()
        self._next: int | None = None
        """The batch after the last in `_manifests`; None before the first was read."""
        self._caught_up = False
        self._ended = False
        self._wanted: Sequence[Segment] = ()
        self._loaded: dict[str, bytes] = {}
        self._released: tuple[int, int, int | None] | None = None
        self._backlog: Backlog | None = None

    # -- the methods that the reader calls --------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether the thread has found no further manifest and the reader has received all manifests."""
        with self._changed:
            self._check()
            return self._caught_up and not self._manifests

    @property
    def unavailable_s(self) -> float:
        """The time for which the log has been unreachable; 0 if it is reachable."""
        since_s = self._since_s
        return time.monotonic() - since_s if since_s is not None else 0.0

    def label(self, segment: Segment) -> str:
        """Return the location of a segment, for error messages."""
        return f"{self.where}/segments/{segment.file}"

    def first(self) -> Manifest | None:
        """Return the lowest batch that some channel may need and that was not yet returned; None if none is fetched."""
        with self._changed:
            self._check()
            return self._taken() if self._manifests else None

    def manifest(self, batch: int) -> Manifest | None:
        """Return the next batch, or None if it has not been fetched yet."""
        with self._changed:
            self._check()
            return self._taken() if self._manifests and self._manifests[0].batch == batch else None

    def _taken(self) -> Manifest:
        self._changed.notify()
        return self._manifests.popleft()

    def supply(self, wanted: Sequence[Segment]) -> bytes | None:
        """Return the bytes of the first of these segments and discard them, or None while they are being fetched."""
        with self._changed:
            self._check()
            data = self._loaded.get(wanted[0].file)
            self._wanted = wanted if data is None else wanted[1:]
            files = {segment.file for segment in self._wanted}
            self._loaded = {file: body for file, body in self._loaded.items() if file in files}
            self._changed.notify()
            return data

    def check_follows(self, batch: int) -> None:
        """Raise the error that the thread encountered, if any."""
        with self._changed:
            self._check()

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Pass a release to the thread; of several pending releases, only the last one is performed."""
        with self._changed:
            self._check()
            self._released = channel, batch, done
            self._changed.notify()

    def backlog(self) -> Backlog | None:
        """Return the most recently fetched backlog."""
        return self._backlog

    def close(self) -> None:
        """Stop the thread; a pending request that does not finish soon is abandoned."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN_S)

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem
        # The thread is started only now, because the process may fork before the first request.
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name=f"read-{self.name}", daemon=True)
            self._thread.start()

    # -- the code that runs on the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        pause_s = RETRY_S_MIN
        steps: _Steps | None = None
        while not self._closed:
            try:
                steps = _Steps(self, self._connect()) if steps is None else steps
                wait_s = steps.take()
                pause_s, self._since_s = RETRY_S_MIN, None
            except Unavailable:
                self._since_s = time.monotonic() if self._since_s is None else self._since_s
                wait_s, pause_s = pause_s, min(2 * pause_s, RETRY_S_MAX)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, wait_s)
                continue
            except Exception as problem:  # the reader's next call raises the error
                with self._changed:
                    self._problem = problem
                return
            with self._changed:
                if wait_s and not self._closed:
                    self._changed.wait(wait_s)


class _Steps:
    """The steps that the thread performs; each consists of one or a few requests."""

    def __init__(self, ahead: ReadAhead, log: ReadableLog) -> None:
        self._ahead = ahead
        self._log = log
        self._look_s = self._report_s = 0.0
        self._arrived = False
        """Whether all that was published when the reader began was read."""
        self._follows_s = time.monotonic() + FOLLOWS_S

    def take(self) -> float:
        """Perform the most urgent step, and return how long to wait unless the reader requests something."""
        ahead, now_s = self._ahead, time.monotonic()
        if self._fetch():
            return 0.0
        released = ahead._released
        if released is not None:
            self._log.release(*released)
            with ahead._changed:
                if ahead._released is released:
                    ahead._released = None
            return 0.0
        if now_s >= self._look_s and not ahead._ended and len(ahead._manifests) < MANIFESTS_MAX:
            if self._look():
                return 0.0
            self._look_s = now_s + LOOK_S
        if ahead._reports and now_s >= self._report_s:
            ahead._backlog = self._log.backlog()
            self._report_s = now_s + REPORT_S
        return max(LOOK_S_MIN, min(LOOK_S, self._look_s - time.monotonic()))

    def _look(self) -> bool:
        """Read the next manifest, and return whether it exists."""
        ahead = self._ahead
        manifest = self._log.first() if ahead._next is None else self._log.manifest(ahead._next)
        if manifest is None and ahead._next is not None and not self._arrived:
            # All channels may have released the next batch; in that case, the lowest batch has a higher number.
            lowest = self._log.first()
            manifest = lowest if lowest is not None and lowest.batch >= ahead._next else None
        if manifest is None:
            self._arrived = True
            if ahead._next is not None and time.monotonic() >= self._follows_s:
                self._log.check_follows(ahead._next)
                self._follows_s = time.monotonic() + FOLLOWS_S
            ahead._caught_up = True
            return False
        self._follows_s = time.monotonic() + FOLLOWS_S
        with ahead._changed:
            ahead._manifests.append(manifest)
            ahead._next = manifest.batch + 1
            ahead._ended = ahead._caught_up = manifest.ended
        return True

    def _fetch(self) -> bool:
        """Read the next segment that is wanted and fits into the bound, and return whether there was one."""
        ahead = self._ahead
        with ahead._changed:
            missing = [segment for segment in ahead._wanted if segment.file not in ahead._loaded]
            size = sum(map(len, ahead._loaded.values()))
        if not missing or (size >= AHEAD_BYTES and missing[0] is not ahead._wanted[0]):
            return False
        data = self._log.supply(missing[:1])
        with ahead._changed:
            if data is not None and any(segment.file == missing[0].file for segment in ahead._wanted):
                ahead._loaded[missing[0].file] = data
        return data is not None
