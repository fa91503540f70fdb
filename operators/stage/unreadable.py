"""Input that cannot be read as a record; it still counts as an element, so that later positions do not change.

A reader returns an `Unreadable` instead of the record. The source's stage handles it like a record on which user code
raises an exception: the job stops with a one-line error, or a dead letter is written (`--on-error`).
"""

from __future__ import annotations

from typing import Any

from causal.records.unreadable import Unreadable
from operators.stage.failures import Remedied
from operators.stage.scope import Scope
from operators.stage.stages import OneToOneStage

SET_ASIDE = "resume with --on-error dead-letter to write such lines to the dead letters"
"""The general remedy for input that is not a record."""


class BadInput(Remedied, ValueError):
    """Raised for an input line, row or message that is not a record."""


class ReadingStage(OneToOneStage):
    """The stage of a source that may return `Unreadable`.

    Args:
        remedy: the remedy for input that is not a record.
    """

    def __init__(self, name: str, scope: Scope, remedy: str = SET_ASIDE) -> None:
        super().__init__(name, scope)
        self._remedy = remedy

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        self._lost = ()
        if type(records) is not list or Unreadable not in map(type, records):
            return records
        lost = [index for index, record in enumerate(records) if type(record) is Unreadable]
        for index in lost:
            record = records[index]
            remedy = f"{record.option} and resume with --code new, or {self._remedy}" if record.option else self._remedy
            self.failed(index, record.raw, BadInput(f"{record.where}: {record.why}", remedy))
        self._lost = lost
        return [record for record in records if type(record) is not Unreadable]
