"""A system with offsets that have gaps, in one file per partition, and a source of it that keeps every promise.

Each sabotage of `SABOTAGES` breaks one promise of the source; the check that must find it stands next to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal.errors import DeterminantsLost, PipelineError, Unavailable
from causal.records.unreadable import Unreadable
from operators.source import PartitionReader, Read, Source, SourceContext
from operators.sources import conformance

ELEMENTS, BAD = 24, 9


class Toy:
    """The system: partitions of (offset, value) that can be extended, grow, forget and be away."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        for partition in range(2):
            self._write(partition, [[5 * n + n % 3, None if n == BAD else n] for n in range(ELEMENTS)])

    def rows(self, partition: int) -> list[list[Any]]:
        return list(json.loads((self.directory / f"{partition}.json").read_text()))

    def _write(self, partition: int, rows: list[list[Any]]) -> None:
        (self.directory / f"{partition}.json").write_text(json.dumps(rows))

    def holds(self, partition: int) -> list[Any]:
        return [element(partition, *row) for row in self.rows(partition)]

    @property
    def partitions(self) -> int:
        return len(list(self.directory.glob("*.json")))

    def extend(self) -> None:
        for partition in range(self.partitions):
            rows = self.rows(partition)
            self._write(partition, [*rows, [rows[-1][0] + 7, "new"]])

    def grow(self) -> None:
        self._write(self.partitions, [[3, "a"], [8, "b"]])

    def expire(self, partition: int, position: int) -> None:
        self._write(partition, self.rows(partition)[position:])

    def restart(self) -> None:
        (self.directory / "started").touch()

    @contextmanager
    def away(self) -> Iterator[None]:
        (self.directory / "away").touch()
        yield
        (self.directory / "away").unlink()

    def acknowledged(self, partition: int) -> int:
        path = self.directory / f"{partition}.done"
        return int(path.read_text()) if path.exists() else 0

    def subject(self, job_directory: Path, sabotage: str = "") -> conformance.Subject:
        return conformance.Subject(
            lambda: ToySource(self, sabotage), self.holds, job_directory, extend=self.extend, grow=self.grow,
            expire=self.expire, away=self.away, restart=self.restart, acknowledged=self.acknowledged,
            ingest=lambda say: self._ingest(say, sabotage),
        )  # fmt: skip

    def _ingest(self, say: Any, sabotage: str) -> None:
        """Take elements in, each written before it is acknowledged."""
        while True:
            rows = self.rows(0)
            fresh = [rows[-1][0] + 7, f"taken {len(rows)}"]
            if sabotage != "acknowledges what is not stored":
                path = self.directory / "fresh"
                path.write_text(json.dumps([*rows, fresh]))
                path.replace(self.directory / "0.json")
            say(element(0, *fresh))
            time.sleep(0.002)


def element(partition: int, offset: int, value: Any) -> Any:
    return {"offset": offset, "value": value} if value is not None else Unreadable(f"{partition}@{offset}", "no", b"")


@dataclass
class ToySource(Source[Any]):
    toy: Toy
    sabotage: str
    may_be_unreadable = True
    bad_input_remedy = "correct it"
    asks_partitions = True

    def __post_init__(self) -> None:
        self.partitions = self.toy.partitions
        self.may_be_unreadable = self.sabotage != "does not say that input may be damaged"
        if self.sabotage == "counts new partitions late":
            self.partitions = 2

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return ToyReader(self.toy, partition, context, self.sabotage)

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        if context.mark is not None and self.toy.rows(partition)[0][0] > int(context.mark) + 6:
            raise PipelineError("forgotten")


class ToyReader:
    def __init__(self, toy: Toy, partition: int, context: SourceContext, sabotage: str) -> None:
        self._toy, self._partition, self._sabotage = toy, partition, sabotage
        self._path = context.job_directory / f"begins-{partition}"
        self._begins = (context.position, context.mark)
        self._again: set[int] = set()

    def read(self, position: int, count_max: int) -> Read | None:
        sabotage, toy = self._sabotage, self._toy
        if (toy.directory / "away").exists():
            if sabotage == "ends when its server does not answer":
                return Read([], 0, ended=True)
            raise Unavailable("away")
        first, mark = self._begins
        if sabotage == "forgets where it is at a restart" and (toy.directory / "started").exists():
            position += 1
        if mark is None:
            rows = toy.rows(self._partition)
            if sabotage == "begins at the end each time" and self._path.exists():
                mark = rows[1][0]
            else:
                mark = json.loads(self._path.read_text()) if self._path.exists() else 0
                if self._partition >= 2 and sabotage == "begins new partitions late":
                    mark = rows[1][0]
            self._path.write_text(json.dumps(mark))
            self._begins = (first, mark)
        rows = [row for row in toy.rows(self._partition) if row[0] >= int(mark)]
        if int(mark) and rows and rows[0][0] > int(mark) + 6 and sabotage != "skips what is forgotten":
            raise DeterminantsLost("forgotten")
        rows = rows[position - first :][:count_max]
        if sabotage == "gives other elements when asked again":
            rows = [row if row[0] not in self._again else [row[0], "other"] for row in rows]
            self._again |= {row[0] for row in rows}
        if not rows:
            return Read([{"offset": 0, "value": "ghost"}], 1) if sabotage == "adds an element at the end" else None
        marks = [row[0] + (0 if sabotage == "has wrong marks" else 1) for row in rows]
        if sabotage == "counts offsets as positions":
            marks = [position + 1 + number for number in range(len(rows))]
        records = [element(self._partition, *row) for row in rows]
        if sabotage == "leaves damaged elements out":
            records = [{"offset": 0, "value": 0} if type(each) is Unreadable else each for each in records]
        if sabotage == "acknowledges all that was read":
            self.completed(position + len(records))
        return Read(records, 1, marks=marks)

    def ready_in_s(self, position: int) -> float:
        return 0.001

    def completed(self, position: int) -> None:
        (self._toy.directory / f"{self._partition}.done").write_text(str(position))
        if self._sabotage == "releases more than is complete":
            self._toy.expire(self._partition, position + 3)

    def close(self) -> None:
        """Nothing is open."""


SABOTAGES = {
    "reads_every_element_once": "adds an element at the end",
    "returns_to_any_position": "gives other elements when asked again",
    "continues_from_every_checkpoint": "has wrong marks",
    "begins_at_the_same_element": "begins at the end each time",
    "continues_in_another_directory": "counts offsets as positions",
    "gives_damaged_elements_their_places": "does not say that input may be damaged",
    "survives_kills": "has wrong marks",
    "has_what_it_acknowledged": "acknowledges what is not stored",
    "waits_for_an_unavailable_server": "ends when its server does not answer",
    "continues_after_a_restart": "forgets where it is at a restart",
    "says_what_was_forgotten": "skips what is forgotten",
    "reads_new_partitions": "begins new partitions late",
    "releases_only_what_is_complete": "acknowledges all that was read",
}
"""A check → a sabotage that it finds."""
OTHERS = {
    "reads_new_partitions": "counts new partitions late",
    "releases_only_what_is_complete": "releases more than is complete",
}
