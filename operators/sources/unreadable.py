"""Input that cannot be read as a record: an element of its own, so that positions behind it stay what they are.

A reader gives an `Unreadable` where a record would be, and the source's stage handles it as a record on which user code
raises: the job ends with one line, or a dead letter is written (`--on-error`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from operators.stage.scope import Scope
from operators.stage.stages import OneToOneStage


class BadInput(ValueError):
    """A line, row or message of the input is no record."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An element that is no record.

    Attributes:
        where: the file and line, or whatever names the place.
        why: what is wrong with it.
        raw: what stands there, or its beginning.
    """

    where: str
    why: str
    raw: Any


class ReadingStage(OneToOneStage):
    """The stage of a source that may give `Unreadable`."""

    def __init__(self, name: str, scope: Scope) -> None:
        super().__init__(name, scope)

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        self._lost = ()
        if type(records) is not list or Unreadable not in map(type, records):
            return records
        lost = [index for index, record in enumerate(records) if type(record) is Unreadable]
        for index in lost:
            record = records[index]
            self.failed(index, record.raw, BadInput(f"{record.where}: {record.why}"))
        self._lost = lost
        return [record for record in records if type(record) is not Unreadable]
