"""The treatment of a row that a sink's store will never take: the job ends with one line, or the row is put aside.

`refusing` wraps any store.  A row that is put aside is first written to `refused-<task>.jsonl` among the dead letters,
then its bundle is written without it: the store remembers in the same step that it was left out, and its position
counts, so that a replay, which regenerates the row, lines up.  A letter is written at least once; the same one is not
written again by the next process, so a doubled one takes a zombie, and task, position and record show that it is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from causal.errors import OperatorFailed, PipelineError, RowRefused, Unavailable, invariant
from causal.ports import Bundle, SinkStore, StoreState, WithdrawingStore, WithdrawPoint
from causal.shell.modes import ensure_directory, mode_of_directories, mode_of_files, opened
from causal.shell.outage import progressed
from operators.sinks.contract.sink import Sink, encode_json
from operators.sinks.storage.journal import write_whole
from operators.sinks.storage.lock import locked_once

SHOWN_MAX = 200
BUSY_MS = 2000


def letter_of(operator: str, task: str, run: str, position: int, record: Any, reason: str) -> bytes:
    """The dead letter of a refused row, as a line of JSON."""
    facts = {"operator": operator, "key": None, "position": position, "record": record}
    facts |= {"error": f"RowRefused: {reason}", "task": task, "run": run}
    return (encode_json(facts) + "\n").encode("utf-8", "backslashreplace")


class Letters(Protocol):
    """The place of dead letters for the rows that a store refuses."""

    def put(self, operator: str, bundle: Bundle, rows: Mapping[int, tuple[Any, str]]) -> None:
        """Write a letter for each of these rows, position → (record, reason), that has none yet.

        Raises:
            Unavailable: they cannot be written now.
        """
        ...


class RefusedRows:
    """The dead letters of one sink task; nothing is made before the first of them.

    Args:
        directory: of the dead letters; its parent is there.
        run: of the job; letters of another run are not added to.
        private: whether only the job's user reads them.
    """

    def __init__(self, directory: Path, task: str, run: str, private: bool = True) -> None:
        self.path = directory / f"refused-{task.replace('/', '-')}.jsonl"
        self._task = task
        self._run = run
        self._private = private
        self._written: set[tuple[int, str]] | None = None
        """The (position, record) of the letters of this bundle that are there; None: not read yet."""

    def put(self, operator: str, bundle: Bundle, rows: Mapping[int, tuple[Any, str]]) -> None:
        """Write a letter for each of these rows, position → (record, reason), that has none yet.

        Raises:
            Unavailable: they cannot be written now.
            PipelineError: the file holds letters of another run.
        """
        try:
            ensure_directory(self.path.parent, mode_of_directories(self._private))
            lock = self.path.with_name(f".{self.path.stem}.lock")
            with locked_once(lock, BUSY_MS, self.path, mode_of_files(self._private)):
                self._append(operator, bundle, rows)
        except OSError as problem:
            self._written = None
            raise Unavailable(
                f"{self.path}: {problem.strerror}; the dead letter cannot be written: make room, repair the disk"
            ) from problem

    def _append(self, operator: str, bundle: Bundle, rows: Mapping[int, tuple[Any, str]]) -> None:
        file = opened(self.path, os.O_RDWR | os.O_APPEND, mode_of_files(self._private))
        try:
            if self._written is None:
                os.ftruncate(file, self._read(bundle.first))
            self._written = written = {known for known in self._written or () if known[0] >= bundle.first}
            letters = []
            for position, (record, reason) in rows.items():
                known = (position, encode_json(record))
                if known not in written:
                    written.add(known)
                    letters.append(letter_of(operator, self._task, self._run, position, record, reason))
            if letters:
                write_whole(file, b"".join(letters))
                os.fdatasync(file)
        finally:
            os.close(file)

    def _read(self, first: int) -> int:
        """Read the letters of rows from `first` on; returns how many bytes of the file are whole letters."""
        self._written, whole = set(), 0
        with open(self.path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # torn: its writer died, or the disk was full
                whole += len(line)
                letter = json.loads(line)
                if letter["run"] != self._run:
                    raise PipelineError(f"{self.path} holds dead letters of another run; move it away")
                if letter["position"] >= first:
                    self._written.add((letter["position"], encode_json(letter["record"])))
        return whole


@runtime_checkable
class PromisingStore(Protocol):
    """A store that holds a bundle before the world has taken it."""

    def promised_bundle(self) -> Bundle | None:
        """A bundle that is held and has not reached the world as a whole: it must be written again."""
        ...


class RefusingStore:
    """A store in which a refused row stops the job or is put aside.

    State: `refused` is how many rows of the store were ever left out, below its position.
    """

    def __init__(self, inner: SinkStore, sink: Sink, name: str, task: str, letters: Letters | None) -> None:
        self.refused = 0
        self._inner = inner
        self._sink = sink
        self._name = name
        self._task = task
        self._letters = letters
        self._of: tuple[int, int, int] | None = None
        self._out: dict[int, str] = {}
        """The rows that are left out of the bundle of `_of`, which may come again without the same ones."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`."""
        self._of, self._out = None, {}
        state = self._noted(self._inner.open(task, run, incarnation))
        pending = self._inner.promised_bundle() if isinstance(self._inner, PromisingStore) else None
        if pending is None:
            return state
        self.write(pending)
        return self._noted(self._inner.last_bundle())

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        return self._noted(self._inner.last_bundle())

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`.

        Raises:
            OperatorFailed: the store refuses a row, and the job is set to stop.
        """
        this = (bundle.first, bundle.count, bundle.digest)
        if self._of != this:
            self._of, self._out = this, dict(bundle.refused)
        while True:
            try:
                self._inner.write(replace(bundle, refused=tuple(sorted(self._out.items()))) if self._out else bundle)
            except RowRefused as refused:
                self._set_aside(bundle, {p: reason for p, reason in refused.rows if p not in self._out})
                continue
            self.refused += len(self._out)
            self._of, self._out = None, {}
            return

    def _set_aside(self, bundle: Bundle, fresh: Mapping[int, str]) -> None:
        facts = {"task": self._task, "first": bundle.first, "count": bundle.count, "refused": sorted(fresh)}
        invariant(fresh, "a store does not refuse a row that is left out", **facts)
        invariant(all(0 <= p - bundle.first < bundle.count for p in fresh), "a refused row is of its bundle", **facts)
        rows = {p: (self._sink.shown_row(bundle.rows, p - bundle.first), reason) for p, reason in sorted(fresh.items())}
        if self._letters is None:
            position, (record, reason) = next(iter(rows.items()))
            raise OperatorFailed(
                f"sink {self._name!r}, position {position} of {self._task}: its store refuses the row: "
                f"{' '.join(reason.split())[: 2 * SHOWN_MAX]}; record {encode_json(record)[:SHOWN_MAX]}; correct the "
                "pipeline or the store, or resume with --on-error dead-letter to set such rows aside"
            )
        self._letters.put(self._name, bundle, rows)
        self._out.update(fresh)
        progressed()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        self._inner.truncate(epoch)

    def close(self) -> None:
        """Close the store."""
        self._inner.close()

    def _noted(self, state: StoreState) -> StoreState:
        self.refused = state.refused
        return replace(state, place=self._sink.place)


class WithdrawingRefusingStore(RefusingStore):
    """A `RefusingStore` around a store that can take rows back."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        store = self._inner
        invariant(isinstance(store, WithdrawingStore), "only a store that can takes rows back", task=self._task)
        return self._noted(store.withdraw(mark))  # type: ignore[attr-defined]


def refusing(inner: SinkStore, sink: Sink, name: str, task: str, letters: Letters | None) -> RefusingStore:
    """Returns `inner`, wrapped so that refused rows stop the job or are put aside.

    Args:
        name: of the sink's operator.
        letters: where they are put aside; None stops the job instead.
    """
    kind = WithdrawingRefusingStore if isinstance(inner, WithdrawingStore) else RefusingStore
    return kind(inner, sink, name, task, letters)
