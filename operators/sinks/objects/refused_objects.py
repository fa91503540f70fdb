"""Dead letters of rows that a sink's store refuses, in a shared store, where each letter is one object.

    refused/<task>-<position>-<digest>.jsonl         a letter
    refused-kept/<task>-<incarnation>-<number>       letters kept until their bundle is stored

An object is created only if it does not exist yet.
"""

from __future__ import annotations

import json
import re

from xxhash import xxh3_64_hexdigest

from causal.ports import StoreState
from causal.storage.shared import Depot
from operators.sinks.contract.letters import Kept, standing, unpacked
from operators.sinks.contract.sink import encode_json
from operators.sinks.objects import object_place
from operators.sinks.objects.object_place import stem_of

FOLDER, KEPT = "refused", "refused-kept"
_PLACE = re.compile(r"(.+)-(\d{12,})-[^-]+")
"""The name of an object: task, position or incarnation, and the rest."""


class RefusedObjects:
    """The letters of one sink task; see `operators.sinks.contract.letters.Letters`.

    Args:
        url: the URL of the dead letters; the connection is opened when the first row is refused.
        run: the run of the job.
    """

    def __init__(self, url: str, task: str, run: str) -> None:
        self._url = url
        self._stem = stem_of(task)
        self._run = run
        self._depot: Depot | None = None
        self._number = 0
        self._kept: dict[str, Kept] = {}
        """The letters that this process has kept and not shown, by name."""

    def keep(self, kept: Kept, incarnation: int) -> None:
        """See `Letters.keep`; an attempt without an answer is repeated under another name, which takes precedence."""
        self._number += 1
        name = f"{KEPT}/{self._stem}-{incarnation:012d}-{self._number:012d}"
        self._connected.create(name, kept.packed())
        self._kept[name] = kept

    def show(self, incarnation: int) -> None:
        """See `Letters.show`."""
        self._show(list(self._kept.values()))
        self._connected.remove(list(self._kept))
        self._kept.clear()

    def settle(self, state: StoreState, incarnation: int) -> None:
        """See `Letters.settle`."""
        self._kept.clear()
        if not state.refused:
            return  # so that no connection is opened before the first refused row
        depot = self._connected
        by_incarnation: dict[int, list[str]] = {}
        for name in self._names(KEPT, 0):
            by_incarnation.setdefault(self._place(name), []).append(name)
        for writer, names in sorted(by_incarnation.items()):
            if writer <= incarnation:
                self._show(standing(map(unpacked, depot.read_all(names)), self._run, state))
                depot.remove(names)

    def withdraw(self, position: int) -> None:
        """See `Letters.withdraw`."""
        self._connected.remove(self._names(FOLDER, position))

    @property
    def _connected(self) -> Depot:
        self._depot = self._depot or object_place.connected(self._url)
        return self._depot

    def _names(self, folder: str, least: int) -> list[str]:
        """Return the sorted names of this task's objects in a folder whose `_place` is at least `least`."""
        names = [name for name in self._connected.names(folder) if self._place(name) >= least]
        return sorted(names)

    def _place(self, name: str) -> int:
        """Return the position or incarnation in an object's name, or -1 if the name belongs to another task."""
        parts = _PLACE.fullmatch(name.partition("/")[2])
        return int(parts[2]) if parts is not None and parts[1] == self._stem else -1

    def _show(self, every: list[Kept]) -> None:
        for line in (line for kept in every for line in kept.letters):
            letter = json.loads(line)
            digest = xxh3_64_hexdigest(encode_json(letter["record"]).encode("utf-8", "backslashreplace"))
            self._connected.create(f"{FOLDER}/{self._stem}-{letter['position']:012d}-{digest}.jsonl", line)
