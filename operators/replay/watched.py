"""Hooks into a replay: what a debugger, a comparison or the search for the origin of a row sees of it (0054).

A chain without a hook performs batches at full speed. With one, each stage receives a list that announces its records
one by one, at the moment at which the stage takes them: the effects of all earlier records are done, and the user's
function is called next. Nothing else about the batch changes, so the replay still reaches the recorded cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from operators.engine.operator_chain import OperatorChain
from operators.kinds.process.outside_calls import AskStage
from operators.kinds.process.process_stage import ProcessStage
from operators.kinds.windows.contents import Contents
from operators.kinds.windows.task_windows import Window
from operators.kinds.windows.window_stage import WindowedStage
from operators.stage.context import Context
from operators.stage.stages import Stage
from operators.state.due_index import Pair


@dataclass(frozen=True, slots=True)
class Arriving:
    """A record that an operator is about to process, or another event of a key.

    Attributes:
        task: the name of the task.
        record: the record; of another event, what a dead letter about it would contain.
        key: the record's key; None for an operator without keys.
        ctx: the operator's `ctx`, if it has one; its `key` and `state` are set when the record is processed.
        kind: `record`, or `timer`, `window` (which is emitted), `answer` (to the request for the record), `end` (of the
            input, for `finish`).
    """

    task: str
    operator: str
    record: Any
    key: Any
    ctx: Context | None
    kind: str = "record"


Before = Callable[[Arriving], None]


def watch(chain: OperatorChain, task: str, before_record: Before, before_other: Before | None = None) -> None:
    """Call `before_record` for each record that reaches an operator of a chain, from now on.

    A record of a batch that its stage does not process one by one, such as Arrow columns, is announced as part of the
    batch.

    Args:
        before_other: called for each other event of a key: timers, windows that are emitted, answers to requests, and
            the end of the input. Tables, and windows of Arrow columns, do not announce theirs.
    """
    for stage in chain.stages:
        _watch_stage(stage, task, before_record)
        if before_other is not None:
            _watch_others(stage, task, before_other)


def _watch_others(stage: Stage, task: str, before_other: Before) -> None:
    def announce(kind: str, record: Any, key: Any) -> None:
        before_other(Arriving(task, stage.shown_as, record, key, getattr(stage, "_ctx", None), kind))

    if isinstance(stage, ProcessStage):
        call = stage._one

        def one(key: Any, record: Any, *arguments: Any) -> None:
            announce("end" if record is None else "timer", record, key)
            call(key, record, *arguments)

        stage._one = one  # type: ignore[method-assign, assignment]
    elif isinstance(stage, WindowedStage):
        _watch_contents(stage._contents, announce)
    elif isinstance(stage, AskStage):
        answer = stage.answer

        def answered(number: int, body: bytes) -> list[Any]:
            announce("answer", *stage.request_of(number))
            return answer(number, body)

        stage.answer = answered  # type: ignore[method-assign]


def _watch_contents(contents: Contents, announce: Callable[[str, Any, Any], None]) -> None:
    """Announce each window before it is emitted, with the state that it has until then."""
    emit, emit_last, emit_all = contents.emit, contents.emit_last, contents.emit_all

    def announced(pair: Pair, window: Window) -> None:
        announce("window", {"window": [window.start, window.end]}, pair[0])

    def one(pair: Pair, window: Window, *arguments: Any, **options: Any) -> None:
        announced(pair, window)
        emit(pair, window, *arguments, **options)

    def each_last(pairs: Sequence[Pair], window: Window, out: list[Any]) -> None:
        for pair in pairs:
            announced(pair, window)
            emit_last([pair], window, out)

    def joined(pairs: Sequence[Pair], window: Window, out: list[Any]) -> None:
        announced(pairs[0], window)
        emit_all(pairs, window, out)

    contents.emit, contents.emit_last, contents.emit_all = one, each_last, joined  # type: ignore[method-assign]


def _watch_stage(stage: Stage, task: str, before_record: Before) -> None:
    def announce(record: Any, key: Any) -> None:
        before_record(Arriving(task, stage.shown_as, record, key, getattr(stage, "_ctx", None)))

    def watched(perform: Callable[[Any, Any], Any], records: Any, keys: Any) -> Any:
        if type(records) is not list:
            announce(records, None)
            return perform(records, keys)
        batch = AnnouncedBatch(records, keys, announce)
        output = perform(batch, keys)
        batch.announce(len(batch))
        return output[:] if output is batch else output

    run, run_side = stage.run, stage.run_side
    if isinstance(stage, ProcessStage) and stage._in_order and stage._batches is None:
        with_time = stage._with_time

        def timed(*arguments: Any) -> Iterator[tuple[Any, Any]]:
            for key, record in with_time(*arguments):  # timers that are due before the record have fired
                announce(record, key)
                yield key, record

        stage._with_time = timed  # type: ignore[method-assign, assignment]
    elif stage.sides:
        stage.run_side = lambda side, records, keys: watched(  # type: ignore[method-assign]
            lambda batch, own: run_side(side, batch, own), records, keys
        )
    else:
        stage.run = lambda records, keys: watched(run, records, keys)  # type: ignore[method-assign]


class AnnouncedBatch(list[Any]):
    """The records of a batch, with `announce(record, key)` called when one is taken, once for each."""

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

    def __init__(self, batch: AnnouncedBatch, rows: Iterator[Any]) -> None:
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
