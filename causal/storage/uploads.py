"""A process's uploads to the shared store, on a separate thread; each is acknowledged once it is stored (D17).

A snapshot is written to the local disk before it is uploaded, and is removed from the disk afterwards. Requests to an
unavailable store are repeated for as long as the process runs. Meanwhile, only checkpoints and stable determinants
wait.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from causal.errors import CausalError
from causal.process.clock import monotonic_ns
from causal.storage.shared import Depot, insist

CLOSE_WITHIN_S = 5
SLOW_NS = 1_000_000_000
"""The duration from which an upload is reported as waiting."""

_log = logging.getLogger("causal.uploads")


class Uploads:
    """The uploads of one process.

    Args:
        done: called on the thread with the answer to each request, or with the error that ends the task.
    """

    def __init__(self, depot: Depot, done: Callable[[object], None]) -> None:
        self._depot = depot
        self._done = done
        self._requests: queue.SimpleQueue[Callable[[], object | None] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._under_way: tuple[int, str] | None = None
        """The start time and last problem of the current upload; None if there is none."""
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)
        self._thread.start()

    def put(self, name: str, path: Path, answer: object) -> None:
        """Upload a file as the object `name`; `done` receives `answer` once the object is stored."""
        self._requests.put(lambda: self._upload(name, path, answer))

    def perform(self, request: Callable[[], object | None], again: bool) -> None:
        """Perform a request on the store after the earlier ones; `done` receives its answer unless that is None.

        Args:
            again: whether to repeat the request while the store is unavailable and the process lives.
        """
        self._requests.put((lambda: self._insist(request)) if again else request)

    @property
    def waiting(self) -> tuple[int, str] | None:
        """(start time in job time, last problem) of a slow upload, or None; the problem is empty if none is known."""
        under_way = self._under_way
        return under_way if under_way is not None and monotonic_ns() - under_way[0] >= SLOW_NS else None

    def close(self) -> None:
        """End the thread; an upload that does not end soon is abandoned."""
        self._closed.set()
        self._requests.put(None)
        self._thread.join(timeout=CLOSE_WITHIN_S)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None and not self._closed.is_set():
            self._under_way = monotonic_ns(), ""
            try:
                answer = request()
            except (CausalError, OSError) as problem:  # passed to the task's thread, which raises it
                answer = problem
            self._under_way = None
            if answer is not None:
                self._done(answer)

    def _upload(self, name: str, path: Path, answer: object) -> object | None:
        data = path.read_bytes()

        def create() -> object:
            self._depot.create_own(name, data)
            path.unlink(missing_ok=True)
            return answer

        return self._insist(create)

    def _insist(self, request: Callable[[], object | None]) -> object | None:
        return insist(request, self._report, lambda: not self._closed.is_set())

    def _report(self, problem: str) -> None:
        """Log the first of several consecutive failures, and the recovery after the last one."""

        since_ns, before = self._under_way or (monotonic_ns(), "")
        if problem and not before:
            _log.warning("a checkpoint waits: %s", problem)
        elif not problem:
            _log.info("the store answers again")
        self._under_way = since_ns, problem
