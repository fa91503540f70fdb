"""An Iceberg table: the position of a task is a property of the table, which changes in the commit of the rows.

A commit is made only on the snapshot that was looked at. The library would otherwise repeat a refused commit on a newer
one, so the table gets `commit.retry.num-retries=0`, and the task looks again before it repeats one. A property stays
when snapshots expire or another program rewrites files; each snapshot also names the position, for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, parquet_file_to_data_file
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table import Transaction as Change

from causal.errors import CausalError, PipelineError, Unavailable
from operators.sinks.lake.lake_table import OWN, RUN, SCHEMA, Conflict, Facts, LakeTable, line_of, small

RETRIES = "commit.retry.num-retries"
POSITION = "causal.position."
"""The prefix of the property of a task, whose value is the run and the position after its last row."""
_STORE_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
}
"""Property of the catalog → option of obstore."""


class IcebergLake(LakeTable):
    """A client of an Iceberg table.

    Args:
        identifier: the namespace and name, `"shop.orders"`.
        catalog: the name of a catalog that the library is configured for, or the properties of one.
    """

    folder = "data/"

    def __init__(self, identifier: str, catalog: str | Mapping[str, str]) -> None:
        self._identifier = identifier
        self._catalog_of = catalog
        self._secrets = {} if isinstance(catalog, str) else catalog
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def open(self, create: bool) -> bool:
        """See `LakeTable.open`; a new table has no columns until the first rows determine them."""
        self._table = None
        with self._errors():
            self._catalog = self._connected()
            table = self._loaded()
            if table is None and create:
                with suppress(TableAlreadyExistsError):
                    self._catalog.create_table(self._identifier, Schema(), properties={RETRIES: "0", SCHEMA: ""})
                table = self._loaded()
        if table is None:
            return False
        self.location = table.location()
        properties = table.io.properties
        self.options = {there: properties[here] for here, there in _STORE_OPTIONS.items() if here in properties}
        if self.options.get("endpoint", "").startswith("http:"):
            self.options = {**self.options, "allow_http": "true"}
        return True

    def check(self) -> None:
        """Raise `Unavailable` if the catalog does not answer, and `PipelineError` if it lacks the namespace."""
        namespace = Catalog.namespace_from(self._identifier)
        with self._errors():
            if not self._connected().namespace_exists(namespace):
                raise PipelineError(
                    f"{self}: the catalog has no namespace {'.'.join(namespace)!r}; create it, or correct the name"
                )

    def _connected(self) -> Catalog:
        named = self._catalog_of if isinstance(self._catalog_of, str) else "causal"
        return load_catalog(named, **self._secrets)

    def look(self) -> Facts | None:
        """See `LakeTable.look`."""
        with self._errors():
            table = self._table = self._loaded()
        if table is None:
            return None
        schema = table.schema().as_arrow()
        properties = table.properties
        columns = pa.schema([field.with_type(small(field.type)) for field in schema])
        return Facts(properties.get(RUN, ""), properties.get(SCHEMA, OWN), columns)

    def end_of(self, run: str, task: str) -> int:
        """See `LakeTable.end_of`."""
        owner, _, position = self._seen.properties.get(POSITION + task, "").rpartition(" ")
        return int(position) if owner == run else 0

    def names(self) -> list[str]:
        """See `LakeTable.names`."""
        prefix = f"{self.location.rstrip('/')}/"
        with self._errors():
            return [task.file.file_path.removeprefix(prefix) for task in self._seen.scan().plan_files()]

    def kept(self, schema: pa.Schema) -> pa.Schema:
        """See `LakeTable.kept`."""
        try:
            kept = Catalog._convert_schema_if_needed(schema).as_arrow()
        except (UnsupportedPyArrowTypeException, TypeError, ValueError) as problem:
            raise ValueError(line_of(problem, {})) from None
        return pa.schema([pa.field(field.name, small(field.type)) for field in kept])

    def create(self, run: str, schema: pa.Schema) -> None:
        """See `LakeTable.create`; `open` has created the table, so it was removed since."""
        raise Unavailable(f"{self} was removed while the job was running; restore it")

    def claim(self, run: str, fitted: str) -> None:
        """See `LakeTable.claim`; an empty snapshot makes concurrent commits conflict."""
        with self._change() as change:
            with change.update_snapshot().fast_append():
                pass
            change.set_properties({RUN: run, SCHEMA: fitted, RETRIES: "0"})

    def empty(self) -> None:
        """See `LakeTable.empty`; earlier snapshots can still be read."""
        with self._change() as change:
            change.delete(AlwaysTrue())

    def begin(self, run: str, schema: pa.Schema) -> None:
        """See `LakeTable.begin`."""
        with self._change() as change:
            with change.update_schema(allow_incompatible_changes=True) as update:
                for field in self._seen.schema().fields:
                    update.delete_column(field.name)
            with change.update_schema(allow_incompatible_changes=True) as update:
                update.union_by_name(schema)
            if self.names():
                change.delete(AlwaysTrue())
            with change.update_snapshot().fast_append():
                pass
            change.set_properties({RUN: run, SCHEMA: run, RETRIES: "0"})

    def grow(self, schema: pa.Schema) -> None:
        """See `LakeTable.grow`."""
        with self._change() as change, change.update_schema() as update:
            update.union_by_name(schema)

    def add(self, run: str, task: str, next_: int, name: str, size: int, rows: int) -> None:
        """See `LakeTable.add`."""
        table = self._seen
        if table.properties.get(RETRIES) != "0":
            with self._change() as change:
                change.set_properties({RETRIES: "0"})
            raise Conflict
        position = {POSITION + task: f"{run} {next_}"}
        with self._change() as change:
            path = f"{self.location.rstrip('/')}/{name}"
            file = parquet_file_to_data_file(table.io, table.metadata, path)
            with change.update_snapshot(snapshot_properties=position).fast_append() as append:
                append.append_data_file(file)
            change.set_properties(position)

    def __str__(self) -> str:
        return f"Iceberg table {self._identifier}"

    @property
    def _seen(self) -> Table:
        if self._table is None:
            raise Conflict
        return self._table

    def _loaded(self) -> Table | None:
        try:
            return self._catalog.load_table(self._identifier)  # type: ignore[union-attr]
        except NoSuchTableError:
            return None

    @contextmanager
    def _change(self) -> Iterator[Change]:
        """Yield a change of the table as it was looked at, and commit it."""
        with self._errors():
            change = self._seen.transaction()
            yield change
            change.commit_transaction()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the errors of the library, of the catalog's database or server, and of the store."""
        try:
            yield
        except (Conflict, CausalError):
            raise
        except CommitFailedException as problem:
            raise Conflict from problem
        except NoSuchNamespaceError as problem:
            raise PipelineError(
                f"{self}: {line_of(problem, self._secrets)}; create the namespace, or correct the table's name"
            ) from None
        except (ForbiddenError, UnauthorizedError) as problem:
            raise PipelineError(
                f"{self}: the catalog refuses the request: {line_of(problem, self._secrets)}; check the credentials"
            ) from None
        except Exception as problem:  # databases, HTTP and stores have errors without a common class
            raise Unavailable(
                f"{self}: {line_of(problem, self._secrets)}; check the catalog, the credentials and the permissions"
            ) from None
