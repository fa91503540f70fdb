"""An outside world without our transactions, in a file: what was delivered, and what took effect by its keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causal.errors import RowRefused, Unavailable
from operators.sinks.delivery.outward import Delivery


class Receiver:
    """Notes every row that is delivered, in order; `rows` are those that took effect, each key once.

    State: while the file `away` is there nothing is taken; a row with an `n` below 0 never is.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "received"
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
        """Append rows in one write, of which a process that is killed leaves all or nothing."""
        lines = [json.dumps(row) + "\n" for row in zip([task] * len(keys), keys, positions, records)]
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

    def deliveries(self, task: str = "out/0") -> list[tuple[int, Any]]:
        """Return (position, record) of every row, as often as it was delivered, in the order of delivery."""
        records: dict[str, Any] = {}
        deliveries = []
        for of, key, position, record in map(json.loads, self.path.read_text().splitlines()):
            assert records.setdefault(key, record) == record, "a row that comes again is the same"
            if of == task:
                deliveries.append((position, record))
        return deliveries

    def rows(self, task: str = "out/0") -> list[Any]:
        """Return the rows that took effect: each position once, in their order."""
        return [record for _, record in sorted(dict(self.deliveries(task)).items())]

    def doubled(self, task: str = "out/0") -> int:
        """Return how many rows were delivered again."""
        deliveries = self.deliveries(task)
        return len(deliveries) - len(dict(deliveries))
