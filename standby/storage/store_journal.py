"""The journal of the supervisor's decisions in the shared store, written on a separate thread.

A store that is slow or unavailable delays only the effects that depend on a decision; meanwhile, the supervisor
continues to receive events and make decisions.  Waiting decisions are written together.  Entries show candidates that
this leader is alive, so an empty entry is written if there is nothing else to write.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from causal.errors import CausalError, Unavailable, invariant
from causal.storage.objects import Missing
from causal.storage.shared import Depot
from standby.leadership.campaign import Pause
from standby.leadership.candidacy import BEAT_NS
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Create, Names, Procedure, Read, Remove, Request
from standby.leadership.terms import ENDED
from standby.supervision.effects import Record

AGAIN_S = 0.2
"""The pause after a failure, shorter than a candidate's patience, as all supervisors may regain the store together."""

CLOSE_S = 0.8
"""The time that is allowed for writing the last entry."""

WAITING_MAX = 100_000
"""The number of unwritten decisions at which the supervisor ends, because the next one will know the state better."""

Result = TypeVar("Result")
_log = logging.getLogger("standby.store")


def perform(
    procedure: Generator[Request | Pause, Any, Result], depot: Depot, pause: Callable[[int], int] | None = None
) -> Result:
    """Perform a procedure on the shared store and return its result.

    Args:
        pause: a function that waits for this many nanoseconds and returns the time; required by procedures that wait.

    Raises:
        Unavailable: the store does not answer, and the procedure does not handle this.
    """
    answer: Any = None
    try:
        request = next(procedure)
        while True:
            try:
                answer = answered(request, depot, pause)
            except Unavailable as problem:
                request = procedure.throw(problem)
            else:
                request = procedure.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def answered(request: Request | Pause, depot: Depot, pause: Callable[[int], int] | None = None) -> Any:
    """Return the answer to one request of a procedure.

    Raises:
        Unavailable: it is unknown whether the request was performed.
    """
    match request:
        case Names(folder):
            return depot.names(folder)
        case Read(name):
            try:
                return depot.read(name)
            except Missing:
                return None
        case Create(name, data):
            return depot.create(name, data)
        case Remove(names):
            return depot.remove(names)
        case Pause(span_ns):
            invariant(pause is not None, "this procedure does not wait", span_ns=span_ns)
            return pause(span_ns)  # type: ignore[misc]


class StoreJournal(threading.Thread):
    """The journal of one term; the first entry is written before the thread starts.

    Args:
        ledger: the ledger of the term that was won.
        now_ns: a function that returns the job's time.

    Raises:
        Fenced: another supervisor already leads the job.
        Unavailable: the store does not answer.
    """

    def __init__(self, depot: Depot, ledger: Ledger, now_ns: Callable[[], int]) -> None:
        super().__init__(name="journal", daemon=True)
        self._depot = depot
        self._ledger = ledger
        self.now_ns = now_ns
        self.written = 0
        self.problem = ""
        self.wake, self._waker = socket.socketpair()
        for end in (self.wake, self._waker):
            end.setblocking(False)
        self._changed = threading.Condition()
        self._waiting: list[Record] = []
        self._change: tuple[Sequence[Record], str, str] | None = None
        """The decisions, settings and graph of the next version, which are written after what waits."""
        self._closing = ""
        self._closed = False
        self._failure: CausalError | None = None
        first_ns = now_ns()
        self._remove(perform(ledger.append((), first_ns), depot))
        perform(ledger.sweep(), depot)
        self.start()

    def append(self, records: Iterable[Record]) -> None:
        with self._changed:
            self._waiting += records
            if len(self._waiting) > WAITING_MAX:
                raise Unavailable(f"{len(self._waiting)} decisions wait to be written: {self.problem}")
            self._changed.notify()

    def change(self, records: Sequence[Record], job: str, graph: str) -> None:
        """Add the change to another version, as `Ledger.change` writes it; for `written`, it counts as one decision.

        No decision may follow before it has been written.
        """
        with self._changed:
            self._change = records, job, graph
            self._changed.notify()

    def check(self) -> None:
        try:
            while self.wake.recv(4096):
                pass
        except BlockingIOError:
            pass
        if self._failure is not None:
            raise self._failure

    def leave(self, closing: str) -> bool:
        """Write the last entry, which contains the reason for closing; return whether it was written in time."""
        with self._changed:
            self._closing = closing
            self._changed.notify()
        self.join(CLOSE_S)
        return not self.is_alive() and self._failure is None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.join(CLOSE_S)
        self.wake.close()
        if not self.is_alive():
            self._waker.close()

    def run(self) -> None:
        """Write waiting decisions until the last entry has been written."""
        closing = ""
        try:
            while not closing:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._waiting or self._change or self._closing or self._closed, BEAT_NS / 1e9
                    )
                    if self._closed:
                        return
                    records, self._waiting, closing = self._waiting, [], self._closing
                    change, self._change = self._change, None
                if any(record["kind"] == "ended" for record in records):
                    closing = ENDED
                if change is not None:
                    if records:
                        self._write(partial(self._ledger.append, records), len(records))
                    self._write(partial(self._ledger.change, *change), 1)
                    records = []
                if change is None or closing:
                    self._write(partial(self._ledger.append, records, closing=closing), len(records))
        except CausalError as problem:
            self._failure = problem
        self._notify()

    def _write(self, entry: Callable[..., Procedure[tuple[str, ...]]], decisions: int) -> None:
        """Create the next entry, which has this number of decisions, repeatedly until that has succeeded."""
        at_ns = self.now_ns()
        while not self._closed:
            try:
                superfluous = perform(entry(at_ns=at_ns), self._depot)
                break
            except Unavailable as problem:
                if not self.problem:
                    _log.warning("decisions wait: %s", problem)
                self.problem = str(problem)
                time.sleep(AGAIN_S)
        else:
            return
        self.problem = ""
        self.written += decisions
        self._notify()
        self._remove(superfluous)

    def _remove(self, names: tuple[str, ...]) -> None:
        if names:
            self._depot.remove(names)

    def _notify(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:
            pass  # if the buffer is full, the supervisor will check anyway; otherwise, the socket is closed
