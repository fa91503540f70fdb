"""Handling of records on which user code raises; either a one-line error stops the job, or a dead letter is written.

The error names the record. The wording and size limits are defined here, so that every operator fails in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

from causal.errors import OperatorFailed
from causal.records.batch import WATERMARK, Chunk
from causal.records.values import NotCarried, encode, encode_loosely, place_of_refused
from operators.tracebacks import described, location, shown, user_traceback

__all__ = ["NO_KEY", "Failures", "shown"]

_NO_KEY = object()
NO_KEY: Any = _NO_KEY


class Remedied(Exception):
    """A problem whose text contains its own remedy, which replaces the general advice.

    Args:
        text: the description of the problem.
        remedy: the remedy, which follows "; " in the message.
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


_REVISION_BYTES = 64
"""The maximum size of a revision in addition to its key and two rows, including the window bounds in its key."""
_CORRECT = "correct the pipeline and resume with --code new"
_REMEDY = f"{_CORRECT}, or resume with --on-error dead-letter to set such records aside"


class LetterEncoder(Protocol):
    """An encoder that checks dead letters for their sink; it raises an error on a value that the sink cannot store."""

    def encode(self, records: Sequence[Any]) -> bytes: ...


class Failures:
    """The handler of failing records, which knows the current event and either stops the job or writes a dead letter.

    Attributes:
        letters: the dead letters of this event, in order; the chain sends them at the end of the event.
        set_aside: whether the job continues after a failing record; such a record must not have any effect.
    """

    def __init__(
        self,
        dead_letters: LetterEncoder | None,
        record_bytes_max: int,
        givers: Mapping[str, str] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """
        Args:
            dead_letters: the encoder for the dead-letter sink; with None, a failing record stops the job.
            givers: operator -> the operator from which it reads, for error messages.
            places: operator -> the file:line of its definition, for error messages without a line of user code.
        """
        self._givers = givers
        self._places = places
        self.letters: list[dict[str, Any]] = []
        self.set_aside = dead_letters is not None
        self._encoder = dead_letters
        self._record_bytes_max = record_bytes_max
        self._place = "before the first event"
        self._first: int | None = None
        self._chunks: Sequence[Chunk] = ()

    def delivering(self, label: str, first: int, chunks: Sequence[Chunk]) -> None:
        """Begin an event that delivers `chunks`, from position `first` of the channel named `label`."""
        self._place, self._first, self._chunks = label, first, chunks

    def carried(self, record: Any) -> Any:
        """Return a record that is about to leave an operator, unchanged.

        Raises:
            NotCarried: the record contains a value that no record can contain.
            ValueError: the record is larger than `record_bytes_max`, or nested too deeply.
        """
        size = self._size(record)
        if size > self._record_bytes_max:
            raise ValueError(
                f"it has {size} bytes, but record_bytes_max is {self._record_bytes_max}; raise "
                "record_bytes_max, or split the record"
            )
        return record

    def carried_row(self, key: Any, row: Any) -> Any:
        """Return a table row that is about to leave an operator, unchanged.

        A later row replaces it in one revision that contains both rows, so each row may have only half the size of a
        record.

        Raises:
            NotCarried: the row contains a value that no record can contain.
            ValueError: a revision with two such rows would be larger than `record_bytes_max`.
        """
        try:
            size = self._size((key, row))
        except NotCarried:
            self._size(row)  # if the row is the cause, this call raises an error that names the place within it
            raise
        if 2 * size > self._record_bytes_max and size + self._size(row) + _REVISION_BYTES > self._record_bytes_max:
            raise ValueError(
                f"it has {size} bytes with its key, and a revision has two such rows, which exceeds "
                f"record_bytes_max, {self._record_bytes_max}; raise record_bytes_max, or split the row"
            )
        return row

    def _size(self, value: Any) -> int:
        """Return the size of a value's encoding in bytes.

        Raises:
            NotCarried: no record can contain the value.
        """
        try:
            return len(encode_loosely([value])) - 1  # excludes the byte of the surrounding list
        except NotCarried as refused:
            place = place_of_refused(value, refused, encode_loosely)
            raise (NotCarried(f"record{place}: {refused}") if place else refused) from None

    def elsewhere(self, place: str) -> None:
        """Begin an event that delivers nothing, for example one that fires timers."""
        self._place, self._first, self._chunks = place, None, ()

    @property
    def delivers(self) -> bool:
        return self._first is not None

    def defined(self, operator: str) -> str:
        """Return the clause of a message with the file:line of an operator's definition, or "" if it is not known."""
        return f" (defined at {self._places[operator]})" if operator in self._places else ""

    def position(self, index: int) -> int | None:
        """Return the channel position of record `index` of the event, or None if the event delivers nothing."""
        if self._first is None:
            return None
        position = self._first
        for chunk in self._chunks:
            if chunk.kind != WATERMARK:
                if index < chunk.count:
                    return position + index
                index -= chunk.count
            position += chunk.count
        return None

    def failed(self, operator: str, key: Any, index: int | None, record: Any, problem: Exception) -> None:
        """Write a dead letter for a record on which `problem` was raised, or stop the job.

        Args:
            index: the index of the record among the records that the event delivered; None if it is not one of them.

        Raises:
            OperatorFailed: the job is configured to stop on failing records.
        """
        position = None if index is None else self.position(index)
        if self._encoder is None:
            raise OperatorFailed(self.line(operator, key, position, record, problem)) from problem
        letter = {
            "operator": operator,
            "key": self._carried(None if key is NO_KEY else key),
            "position": position,
            "record": self._carried(record),
            "error": described(problem),
            "where": location(problem) or None,
            "traceback": self._cut(user_traceback(problem)),
        }
        self.letters.append(letter)

    def stop(self, operator: str, record: Any, problem: Exception) -> NoReturn:
        """Stop the job because of a problem that concerns no single record, even if the job writes dead letters.

        Raises:
            OperatorFailed: always.
        """
        raise OperatorFailed(self.line(operator, NO_KEY, None, record, problem)) from problem

    def line(self, operator: str, key: Any, position: int | None, record: Any, problem: Exception) -> str:
        """Return the line that describes the failure, its location, and the remedy."""
        of_key = "" if key is NO_KEY else f", key {shown(key)}"
        of_record = "" if record is None else f"; record {shown(record)}"
        if record is None and position is not None and operator in self._givers:
            of_record = f"; record None, which {self._givers[operator]} returned"
        where = location(problem)
        at = f" at {where}" if where else self.defined(operator)
        remedy = _CORRECT if self.set_aside else _REMEDY  # with `set_aside`, dead letters are no remedy
        if isinstance(problem, Remedied):
            remedy = problem.remedy
        return f"operator {operator!r}{of_key}, {self._where(position)}: {described(problem)}{at}{of_record}; {remedy}"

    def _where(self, position: int | None) -> str:
        if position is not None:
            return f"position {position} of {self._place}"
        if self._first is None:
            return self._place
        count = sum(chunk.count for chunk in self._chunks)
        return f"positions {self._first} to {self._first + count - 1} of {self._place}"

    def _cut(self, text: str) -> str:
        """Return `text`, or only its end if the whole text is too long for a record."""
        return text.encode(errors="replace")[-(self._record_bytes_max // 4) :].decode(errors="ignore")

    def _carried(self, value: Any) -> Any:
        """Return `value` if it can be written unchanged, otherwise its text."""
        try:
            body = encode([{"": value}])  # encode it as in a batch of letters
            if len(body) <= self._record_bytes_max // 2 and self._encoder is not None:
                self._encoder.encode([value])
                return value
        except (NotCarried, TypeError, ValueError, RecursionError):
            pass  # the value cannot be written, so return its text instead
        return shown(value)
