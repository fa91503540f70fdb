"""Removes snapshots that no manifest names from the shared store, on a thread of its own: a listing may take long."""

from __future__ import annotations

import logging
import threading

from causal.errors import Unavailable
from causal.storage.shared import Depot
from standby.storage.manifests import DIRECTORY, unnecessary
from standby.supervision.effects import RemoveFiles

PAUSE_S = 5.0
"""The least time between two listings; of the orders meanwhile only the last one counts, which allows the most."""

_log = logging.getLogger("standby.store")


class StoreSweeper(threading.Thread):
    """The removals from one job's place in the store; what cannot be removed now is removed by a later order."""

    def __init__(self, depot: Depot) -> None:
        super().__init__(name="store-sweeper", daemon=True)
        self._depot = depot
        self._order: RemoveFiles | None = None
        self._wake = threading.Event()
        self.problem = ""
        """The reason for which the last listing or removal failed; empty if it did not."""

    def take(self, order: RemoveFiles) -> None:
        """Replace the order that is carried out next."""
        self._order = order
        self._wake.set()

    def run(self) -> None:
        """Carry out the last order, repeatedly, as long as the process lives."""
        while self._wake.wait():
            self._wake.clear()
            order = self._order
            if order is not None:
                try:
                    self._depot.remove(unnecessary(self._depot.names(DIRECTORY), order))
                    self.problem = ""
                except Unavailable as problem:
                    self.problem = str(problem)
                    _log.warning("old snapshots stay for now: %s", problem)
            threading.Event().wait(PAUSE_S)
