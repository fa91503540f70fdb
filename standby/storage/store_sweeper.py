"""Removes snapshots that no manifest lists from the shared store, on a separate thread because listing may be slow."""

from __future__ import annotations

import logging
import threading

from causal.errors import Unavailable
from causal.storage.shared import Depot
from standby.storage.manifest_files import DIRECTORY
from standby.storage.manifests import unnecessary
from standby.supervision.effects import RemoveFiles

PAUSE_S = 5.0
"""The shortest time between two listings.  Only the last order in that time counts, because it allows the most."""

_log = logging.getLogger("standby.store")


class StoreSweeper(threading.Thread):
    """Removes files from one job's part of the store; if a file cannot be removed now, a later order removes it."""

    def __init__(self, depot: Depot) -> None:
        super().__init__(name="store-sweeper", daemon=True)
        self._depot = depot
        self._order: RemoveFiles | None = None
        self._wake = threading.Event()
        self.problem = ""
        """The reason why the last listing or removal failed; empty if it succeeded."""

    def take(self, order: RemoveFiles) -> None:
        """Replace the order that will be carried out next."""
        self._order = order
        self._wake.set()

    def run(self) -> None:
        """Carry out the most recent order, repeatedly, until the process ends."""
        while self._wake.wait():
            self._wake.clear()
            order = self._order
            if order is not None:
                try:
                    self._depot.remove(unnecessary(self._depot.names(DIRECTORY), order))
                    self.problem = ""
                except Unavailable as problem:
                    self.problem = str(problem)
                    _log.warning("old snapshots are kept for now: %s", problem)
            threading.Event().wait(PAUSE_S)
