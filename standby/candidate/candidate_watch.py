"""Looks up the candidates that could replace a leader, in the shared store and on a separate thread."""

from __future__ import annotations

import logging
import threading
import time

from causal.errors import CausalError
from causal.storage.shared import Depot
from standby.leadership.candidates import Candidate, Candidates
from standby.storage.store_journal import perform
from standby.supervision.job_view import CandidateView

LOOK_S, SOON_S = 5.0, 1.0
"""The intervals between look-ups of candidates: normally, and while the leader hears no host."""

_log = logging.getLogger("standby.store")


class CandidateWatch(threading.Thread):
    """The candidates that could replace one leader.

    Args:
        holder: the leader's own mark.
    """

    def __init__(self, depot: Depot, holder: str) -> None:
        super().__init__(name="candidates", daemon=True)
        self._depot = depot
        self._candidates = Candidates(holder)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._problem = ""
        self.soon = False
        """Whether the leader hears no host, in which case candidates are looked up more often."""

    def run(self) -> None:
        """Look up candidates repeatedly until `close`."""
        self.look()
        since_s = time.monotonic()
        while not self._closed.wait(SOON_S):
            if self.soon or time.monotonic() - since_s >= LOOK_S:
                self.look()
                since_s = time.monotonic()

    def look(self) -> None:
        """Look up candidates now.  If the store does not answer, the last result remains valid until it is too old."""
        try:
            with self._lock:
                perform(self._candidates.look(time.monotonic_ns()), self._depot)
            self._problem = ""
        except CausalError as problem:
            if not self._problem:
                _log.warning("candidates cannot be looked up: %s", problem)
            self._problem = str(problem)

    def shown(self) -> list[CandidateView]:
        """Return the candidates as `status.json` shows them."""
        waiting = self._candidates.waiting(time.monotonic_ns())
        return [
            CandidateView(name=each.name or None, listen=each.listen, heard_ms=age_ns / 1e6, hears=each.hears)
            for each, age_ns in waiting
        ]

    def hearing(self) -> Candidate | None:
        """Return a candidate that receives messages from hosts; None if there is none."""
        return self._candidates.hearing(time.monotonic_ns())

    def close(self) -> None:
        """Stop looking up candidates."""
        self._closed.set()
