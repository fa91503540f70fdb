"""Hooks into a replay: what a debugger, a comparison or the search for the origin of a row sees of it (0054).

A chain without a hook performs batches at full speed. With one, each stage receives a list that announces its records
one by one, at the moment at which the stage takes them: the effects of all earlier records are done, and the user's
function is called next. Nothing else about the batch changes, so the replay still reaches the recorded cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from operators.engine.operator_chain import OperatorChain
from operators.stage.context import Context
from operators.stage.stages import Stage


@dataclass(frozen=True, slots=True)
class Arriving:
    """A record that an operator is about to process.

    Attributes:
        task: the name of the task.
        key: the record's key; None for an operator without keys.
        ctx: the operator's `ctx`, if it has one; its `key` and `state` are set when the record is processed.
    """

    task: str
    operator: str
    record: Any
    key: Any
    ctx: Context | None


def watch(chain: OperatorChain, task: str, before_record: Callable[[Arriving], None]) -> None:
    """Call `before_record` for each record that reaches an operator of a chain, from now on.

    A record of a batch that its stage does not process one by one, such as Arrow columns, is announced as part of the
    batch.
    """
    for stage in chain.stages:
        _watch_stage(stage, task, before_record)


def _watch_stage(stage: Stage, task: str, before_record: Callable[[Arriving], None]) -> None:
    def announce(record: Any, key: Any) -> None:
        before_record(Arriving(task, stage.shown_as, record, key, getattr(stage, "_ctx", None)))

    def watched(perform: Callable[[Any, Any], Any], records: Any, keys: Any) -> Any:
        if type(records) is not list:
            announce(records, None)
            return perform(records, keys)
        batch = _Batch(records, keys, announce)
        output = perform(batch, keys)
        batch.announce(len(batch))
        return output[:] if output is batch else output

    run, run_side = stage.run, stage.run_side
    if stage.sides:
        stage.run_side = lambda side, records, keys: watched(  # type: ignore[method-assign]
            lambda batch, own: run_side(side, batch, own), records, keys
        )
    else:
        stage.run = lambda records, keys: watched(run, records, keys)  # type: ignore[method-assign]


class _Batch(list[Any]):
    """The records of a batch, which are announced when they are taken, each once."""

    def __init__(self, records: list[Any], keys: list[Any] | None, announce: Callable[[Any, Any], None]) -> None:
        super().__init__(records)
        self._keys = keys
        self._announce = announce
        self._announced = 0

    def announce(self, stop: int) -> None:
        """Announce the records below `stop` that have not been announced yet."""
        while self._announced < stop:
            place, self._announced = self._announced, self._announced + 1
            self._announce(self[place], None if self._keys is None else self._keys[place])

    def __iter__(self) -> Iterator[Any]:
        return _Taking(self, super().__iter__())


class _Taking(Iterator[Any]):
    """The iterator over such a batch; like that of a list, it knows how many records are left."""

    def __init__(self, batch: _Batch, rows: Iterator[Any]) -> None:
        self._batch = batch
        self._rows = rows
        self._taken = 0

    def __next__(self) -> Any:
        if self._taken < len(self._batch):
            self._taken += 1
            self._batch.announce(self._taken)
        return next(self._rows)

    def __length_hint__(self) -> int:
        return len(self._batch) - self._taken
