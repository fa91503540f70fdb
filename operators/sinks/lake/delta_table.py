"""A Delta table: the position of a task is the version of its application transaction.

Delta refuses a commit if another one with the same application, or one that changed the columns or properties, came
first; concurrent commits of other tasks are no conflict. The files are written by the sink itself, because their names
and footers say which rows they contain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.transaction import AddAction

from causal.errors import PipelineError, Unavailable
from operators.sinks.lake.lake_table import OWN, RUN, SCHEMA, Conflict, Facts, LakeTable, line_of

RETRIES_MAX = 15
"""The most commits of other tasks that may precede one of ours before the table is looked at again."""


class DeltaLake(LakeTable):
    """A client of a Delta table.

    Args:
        url: the directory, as a path or URL.
        options: those of the client of the object store, which Delta's library and obstore share.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.location = url
        self.options = options
        self._table: DeltaTable | None = None

    def open(self, create: bool) -> bool:
        """See `LakeTable.open`; a table is created with its first rows."""
        self._table = None
        return True

    def look(self) -> Facts | None:
        """See `LakeTable.look`."""
        with self._errors():
            try:
                if self._table is None:
                    self._table = DeltaTable(self.location, storage_options=dict(self.options))
                else:
                    self._table.update_incremental()
            except TableNotFoundError:
                self._table = None
                return None
            properties = self._table.metadata().configuration
            schema = pa.schema(self._table.schema().to_arrow())
        return Facts(properties.get(RUN, ""), properties.get(SCHEMA, OWN), schema.remove_metadata())

    def end_of(self, run: str, task: str) -> int:
        """See `LakeTable.end_of`."""
        with self._errors():
            return self._seen.transaction_version(_application(run, task)) or 0

    def names(self) -> list[str]:
        """See `LakeTable.names`."""
        with self._errors():
            if self._seen.version() < 0:
                return []
            adds = pa.table(self._seen.get_add_actions(flatten=True))
        return [unquote(path) for path in adds.column("path").to_pylist()]

    def kept(self, schema: pa.Schema) -> pa.Schema:
        """See `LakeTable.kept`."""
        try:
            return pa.schema(Schema.from_arrow(schema).to_arrow()).remove_metadata()
        except Exception as problem:  # the library raises a bare Exception for a type that it does not know
            raise ValueError(line_of(problem, {})) from None

    def create(self, run: str, schema: pa.Schema) -> None:
        """See `LakeTable.create`."""
        with self._errors():
            try:
                DeltaTable.create(
                    self.location,
                    Schema.from_arrow(schema),
                    mode="error",
                    configuration={RUN: run, SCHEMA: run},
                    storage_options=dict(self.options),
                    raise_if_key_not_exists=False,
                )
            except DeltaError as problem:
                if DeltaTable.is_deltatable(self.location, dict(self.options)):
                    raise Conflict from problem
                raise

    def claim(self, run: str, fitted: str) -> None:
        """See `LakeTable.claim`; concurrent commits conflict with a change of properties."""
        with self._errors():
            self._seen.alter.set_table_properties({RUN: run, SCHEMA: fitted}, raise_if_not_exists=False)

    def empty(self) -> None:
        """See `LakeTable.empty`; only the log changes, so earlier versions can still be read."""
        with self._errors():
            self._seen.delete()

    def begin(self, run: str, schema: pa.Schema) -> None:
        """See `LakeTable.begin`; the rows are this run's only after the second commit."""
        with self._errors():
            write_deltalake(self._seen, schema.empty_table(), mode="overwrite", schema_mode="overwrite")
            self._seen.update_incremental()
        self.claim(run, run)

    def grow(self, schema: pa.Schema) -> None:
        """See `LakeTable.grow`."""
        with self._errors():
            fields = [Field(field.name, field.type, nullable=True) for field in Schema.from_arrow(schema).fields]
            self._seen.alter.add_columns(fields)

    def add(self, run: str, task: str, next_: int, name: str, size: int, rows: int) -> None:
        """See `LakeTable.add`."""
        now_ms = int(time.time() * 1000)
        action = AddAction(quote(name), size, {}, now_ms, True, json.dumps({"numRecords": rows}))
        transaction = Transaction(_application(run, task), next_, now_ms)
        properties = CommitProperties(max_commit_retries=RETRIES_MAX, app_transactions=[transaction])
        with self._errors():
            table = self._seen
            table.create_write_transaction([action], "append", table.schema(), commit_properties=properties)

    @property
    def _seen(self) -> DeltaTable:
        if self._table is None:
            raise Conflict
        return self._table

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the errors of the library."""
        try:
            yield
        except CommitFailedError as problem:
            if "onflict" in str(problem) or any(part in str(problem) for part in _CONFLICTS):
                raise Conflict from problem
            raise self._unavailable(problem) from None
        except DeltaProtocolError as problem:
            raise PipelineError(
                f"{self.location} cannot be written: {line_of(problem, self.options)}; use a table without these "
                "features"
            ) from None
        except (DeltaError, OSError) as problem:
            raise self._unavailable(problem) from None

    def _unavailable(self, problem: Exception) -> Unavailable:
        words = line_of(problem, self.options)
        return Unavailable(f"{self.location}: {words}; check the address, the credentials and the permissions")


_CONFLICTS = ("Concurrent transaction", "Metadata changed", "Protocol changed", "Transaction failed", "already exists")


def _application(run: str, task: str) -> str:
    return f"causal/{run}/{task}"
