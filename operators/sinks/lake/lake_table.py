"""The table of a lakehouse as its sink tasks use it, whichever format it has.

A table format decides between concurrent commits, and it keeps other facts with the rows. The sink needs no more: each
commit of rows also contains the position that they end at, and is made only if nothing relevant has changed since the
table was last looked at. A commit is therefore never applied twice, and never by a process that another one replaced.

    causal.run       the run that owns the rows
    causal.schema    the run whose rows determined the columns; "own" if a person did; empty if none has yet
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.types as types

from causal.errors import CausalError, PipelineError, Unavailable

RUN, SCHEMA = "causal.run", "causal.schema"
OWN = "own"
"""The value of `SCHEMA` for a table whose columns a person has determined."""
OWN_FULL = "own, with rows of an older run"
"""The value of `SCHEMA` until the rows of such a table are removed."""
ATTEMPTS_MAX = 50
"""The most commits of others that may precede one of ours before the task retries with a pause."""

Result = TypeVar("Result")


class Conflict(Exception):
    """A commit of another process preceded ours; the table must be looked at again."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a table at one moment.

    Attributes:
        run: the run that owns the rows; empty if no sink has claimed the table.
        fitted: the value of `SCHEMA`; a table that no sink has claimed has `OWN`.
        schema: the columns, with the metadata that the format wants in a file.
    """

    run: str
    fitted: str
    schema: pa.Schema

    def fits(self, run: str) -> bool:
        """Return whether the columns are those that rows of this run must have."""
        return self.run == run and self.fitted in (run, OWN)


class LakeTable(ABC):
    """A client of one table; used by one thread, and opened after any fork.

    Every method raises `Unavailable` or `PipelineError` if the table cannot be used. A method that commits raises
    `Conflict` if the table has changed since the last `look`.

    Attributes:
        location: the directory, as a path or URL, that contains the files of the table.
        folder: the folder of the data files below that directory, with a trailing slash, or an empty string.
        options: the options of the object store, in the spelling of its client, obstore.
    """

    location: str
    folder = ""
    options: Mapping[str, str]

    @abstractmethod
    def open(self, create: bool) -> bool:
        """Connect, and return whether `location` is known; if `create` is set, a table may be created for that."""

    @abstractmethod
    def look(self) -> Facts | None:
        """Read the newest version, and return its facts; None if there is no table."""

    @abstractmethod
    def end_of(self, run: str, task: str) -> int:
        """Return the position after the last row of a task that this version contains."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the data files of this version below `location`; others are given in full."""

    @abstractmethod
    def kept(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that the format keeps for these; raise `ValueError` if it has none."""

    @abstractmethod
    def create(self, run: str, schema: pa.Schema) -> None:
        """Create the table with these columns."""

    @abstractmethod
    def claim(self, run: str, fitted: str) -> None:
        """Make the run the owner, in a commit with which every concurrent commit of rows conflicts."""

    @abstractmethod
    def empty(self) -> None:
        """Remove all rows in one commit."""

    @abstractmethod
    def begin(self, run: str, schema: pa.Schema) -> None:
        """Remove all rows, and replace the columns by those that this run's rows have."""

    @abstractmethod
    def grow(self, schema: pa.Schema) -> None:
        """Add these columns; the rows that exist have no values there."""

    @abstractmethod
    def add(self, run: str, task: str, next_: int, name: str, size: int, rows: int) -> None:
        """Commit a file of rows, together with the position that they end at.

        Args:
            size: the size of the file in bytes.
        """


def settled(place: object, attempt: Callable[[], Result]) -> Result:
    """Return the result of `attempt`, which looks at the table and commits, once no other commit precedes its own.

    Raises:
        Unavailable: the table changes faster than that.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except Conflict:
            continue
    raise Unavailable(f"{place} is changed by others faster than it can be written; the commit is retried")


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the same columns with the types that every format can express: microseconds in UTC, and no null type."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_null(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_date64(kind):
        return pa.date32()
    return _nested(kind, _plain)


def small(kind: pa.DataType) -> pa.DataType:
    """Return the type with 32-bit offsets in place of a large one; the metadata of nested fields remain."""
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    return _nested(kind, small)


def _nested(kind: pa.DataType, inner: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(inner(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(inner(field.type)) for field in kind])
    return kind


def filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with all columns of the schema; those that the batch lacks have no values."""
    if batch.schema.equals(schema):
        return batch
    lacking = frozenset(schema.names).difference(batch.schema.names)
    columns = [
        pa.nulls(batch.num_rows, field.type) if field.name in lacking else batch.column(field.name) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def line_of(problem: BaseException, secrets: Mapping[str, str]) -> str:
    """Return the first line of an error of a library, without the values of options that are secret."""
    text = next(iter(str(problem).splitlines()), "")[:300] or type(problem).__name__
    for name, value in secrets.items():
        if len(value) > 3 and not _OPEN.intersection(name.lower().replace("-", "_").replace(".", "_").split("_")):
            text = text.replace(value, "…")
    return text


_OPEN = frozenset({"region", "endpoint", "http", "type", "warehouse"})
"""Parts of the names of options whose values may be shown."""


def as_refused(place: object, problem: CausalError) -> PipelineError:
    """Return the error for rows that were accepted but no longer fit the table."""
    return PipelineError(
        f"{place}: its columns were changed, so that rows already accepted do not fit ({problem}); restore the columns"
    )
