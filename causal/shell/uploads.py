"""Uploads snapshots to the shared store on a thread of their own, each acknowledged when it is there (D17).

A snapshot is on the local disk before it is uploaded, and is removed from there afterwards.  A store that is
unavailable is asked again for as long as the process lives: only the checkpoint waits.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from causal.errors import CausalError
from causal.shell.depot import Depot, insist

CLOSE_WITHIN_S = 5

_log = logging.getLogger("causal.uploads")


class Uploads:
    """The uploads of one process.

    Args:
        done: is called on the thread with the answer of each upload, or with the error that ends the task.
    """

    def __init__(self, depot: Depot, done: Callable[[object], None]) -> None:
        self._depot = depot
        self._done = done
        self._requests: queue.SimpleQueue[tuple[str, Path, object] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._unavailable = False
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)
        self._thread.start()

    def put(self, name: str, path: Path, answer: object) -> None:
        """Uploads a file under that name; `done` gets the answer once it is stored."""
        self._requests.put((name, path, answer))

    def close(self) -> None:
        """Ends the thread; an upload under way that does not end soon is abandoned."""
        self._closed.set()
        self._requests.put(None)
        self._thread.join(timeout=CLOSE_WITHIN_S)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None and not self._closed.is_set():
            try:
                self._upload(*request)
            except (CausalError, OSError) as problem:  # passed to the task's thread, which raises it
                self._done(problem)

    def _upload(self, name: str, path: Path, answer: object) -> None:
        data = path.read_bytes()

        def create() -> bool:
            self._depot.create_own(name, data)
            return True

        if insist(create, self._report, lambda: not self._closed.is_set()):
            path.unlink(missing_ok=True)
            self._done(answer)

    def _report(self, problem: str) -> None:
        """Logs the first failure of a row, and its end."""
        if problem and not self._unavailable:
            _log.warning("a checkpoint waits: %s", problem)
        elif not problem:
            _log.info("the store answers again")
        self._unavailable = bool(problem)
