"""A world without transactions of ours, in a file: what it was given, and what took effect by its keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causal.errors import RowRefused, Unavailable
from operators.sinks.outward import Delivery


class Receiver:
    """Notes every row that it is given, in order; `rows` are those that took effect, each key once.

    State: while the file `away` is there nothing is taken; a row with an `n` below 0 never is.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "given"
        self.path.touch()
        self._away = directory / "away"

    def __call__(self, delivery: Delivery) -> None:
        if self._away.exists():
            raise Unavailable("gone fishing")
        refused = [(p, "n is too small") for p, row in zip(delivery.positions, delivery.records) if row["n"] < 0]
        if refused:
            raise RowRefused(*refused[0], *refused[1:])
        self.take(delivery.task, delivery.keys, delivery.positions, delivery.records)

    def take(self, task: str, keys: Sequence[str], positions: Sequence[int], records: Sequence[Any]) -> None:
        """One write, of which a process that is killed leaves all or nothing."""
        lines = [json.dumps(told) + "\n" for told in zip([task] * len(keys), keys, positions, records)]
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.write(file, "".join(lines).encode())
        os.close(file)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._away.touch()
        try:
            yield
        finally:
            self._away.unlink()

    def given(self, task: str = "out/0") -> list[tuple[int, Any]]:
        """(position, record) of every row, as often as it was given, in the order in which it was."""
        told: dict[str, Any] = {}
        found = []
        for of, key, position, record in map(json.loads, self.path.read_text().splitlines()):
            assert told.setdefault(key, record) == record, "a row that comes again is the same"
            if of == task:
                found.append((position, record))
        return found

    def rows(self, task: str = "out/0") -> list[Any]:
        """What took effect: each position once, in their order."""
        return [record for _, record in sorted(dict(self.given(task)).items())]

    def doubled(self, task: str = "out/0") -> int:
        """Rows that were given again."""
        found = self.given(task)
        return len(found) - len(dict(found))
