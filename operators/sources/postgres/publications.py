"""The requirements of a source of changes: settings of the server, tables, and the publication that names them.

Each check ends with one line that states the remedy. A table without a replica identity is refused before it is
published, because the server would then refuse the updates and deletes of the applications that use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import PipelineError
from operators.sources.postgres.pgoutput import Column
from operators.sources.postgres.source_connection import Server

VERSION_MIN = 130000
_SETTINGS = """SELECT current_setting('server_version_num')::int, current_setting('wal_level'),
    pg_encoding_to_char(encoding), pg_is_in_recovery(), current_setting('max_slot_wal_keep_size')
    FROM pg_database WHERE datname = current_database()"""
_TABLE = """SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
    has_table_privilege(c.oid, 'SELECT')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%(name)s)"""
_WITHOUT_IDENTITY = """SELECT l.oid::regclass::text FROM pg_class l
    WHERE l.oid IN (SELECT %(oid)s::oid UNION SELECT relid FROM pg_partition_tree(%(oid)s::oid) WHERE isleaf)
    AND l.relkind = 'r' AND (l.relreplident = 'n' OR (l.relreplident = 'd'
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = l.oid AND i.indisprimary)))
    ORDER BY 1 LIMIT 1"""
_COLUMNS = """SELECT attname::text, atttypid::bigint FROM pg_attribute
    WHERE attrelid = %(oid)s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
_PUBLISHED = "SELECT to_jsonb(p) FROM pg_publication_tables p WHERE pubname = %(name)s ORDER BY schemaname, tablename"


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the server whose changes are read."""

    oid: int
    schema: str
    name: str
    is_partitioned: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """The table in SQL: what it contains itself, or the rows of all its partitions."""
        return f"{'' if self.is_partitioned else 'ONLY '}{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a publication, with the columns and rows that are published."""

    table: SourceTable
    columns: tuple[Column, ...]
    row_filter: str

    @property
    def query(self) -> str:
        """The command that copies what is published of the table."""
        names = ", ".join(quoted(column.name) for column in self.columns)
        only = f" WHERE {self.row_filter}" if self.row_filter else ""
        return f"COPY (SELECT {names} FROM {self.table.sql}{only}) TO STDOUT"


def check_server(server: Server) -> str:
    """Check the settings of the server; return `max_slot_wal_keep_size`."""
    version, wal_level, encoding, is_standby, kept = server.rows(_SETTINGS)[0]
    if version < VERSION_MIN:
        raise PipelineError(f"{server.place} is version {version // 10000}; at least 13 is needed")
    if wal_level != "logical":
        raise PipelineError(
            f"{server.place} has wal_level {wal_level}, which does not record what rows were; ALTER SYSTEM SET "
            "wal_level = logical, and restart it"
        )
    if encoding == "SQL_ASCII":
        raise PipelineError(
            f"{server.place} does not know the encoding of its texts (SQL_ASCII); use a database with encoding UTF8"
        )
    if is_standby:
        raise PipelineError(f"{server.place} is a standby; use the address of the primary")
    return str(kept)


def table_of(server: Server, name: str) -> SourceTable:
    """Return the table with this name, "name" or "schema.name"; raise `PipelineError` if it cannot be published."""
    schema, _, table = name.rpartition(".")
    return _table(server, name, schema, table)


def _table(server: Server, name: str, schema: str, table: str) -> SourceTable:
    searched = f"{quoted(schema)}.{quoted(table)}" if schema else quoted(table)
    rows = server.rows(_TABLE, name=searched)
    if not rows:
        raise PipelineError(f"{server.place}: table {name} does not exist; create it, or correct tables")
    oid, schema, table, kind, persistence, readable = rows[0]
    if kind not in "rp":
        raise PipelineError(f"{server.place}: {name} is not a table, so it has no changes; name the tables below it")
    if persistence != "p":
        raise PipelineError(
            f"{server.place}: table {name} is unlogged or temporary, so its changes are not in the write-ahead log; "
            f"ALTER TABLE {name} SET LOGGED, or leave it out"
        )
    if not readable:
        raise PipelineError(f"{server.place}: table {name} cannot be read by this role; GRANT SELECT ON {name} to it")
    return SourceTable(oid, schema, table, kind == "p")


def check_identity(server: Server, table: SourceTable) -> None:
    """Raise `PipelineError` if updates of the table would be refused once it is published."""
    for (name,) in server.rows(_WITHOUT_IDENTITY, oid=table.oid):
        raise PipelineError(
            f"{server.place}: table {name} has no primary key, so the server would refuse updates and deletes of a "
            f'published table; add one, or ALTER TABLE {name} REPLICA IDENTITY FULL, or pass operations=["insert"]'
        )


def exists(server: Server, publication: str) -> bool:
    """Return whether there is a publication of that name."""
    return bool(server.rows("SELECT 1 FROM pg_publication WHERE pubname = %(name)s", name=publication))


def create(server: Server, publication: str, tables: Sequence[SourceTable], operations: Sequence[str]) -> None:
    """Create a publication of exactly these tables; one of that name, which an earlier attempt left, is replaced."""
    names = ", ".join(table.sql for table in tables)
    server.rows(f"DROP PUBLICATION IF EXISTS {quoted(publication)}")
    server.rows(
        f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {names} "
        f"WITH (publish = '{', '.join(operations)}', publish_via_partition_root = true)"
    )


def published(server: Server, publication: str, names: Sequence[str]) -> list[Published]:
    """Return what a publication publishes of the tables with these names, or of all its tables if there are none.

    Raises:
        PipelineError: the publication does not exist, or does not publish one of the tables.
    """
    if not exists(server, publication):
        raise PipelineError(
            f"{server.place}: publication {publication} does not exist; CREATE PUBLICATION {quoted(publication)} FOR "
            "TABLE …, or correct the name"
        )
    parts: dict[tuple[str, str], dict[str, Any]] = {
        (row["schemaname"], row["tablename"]): row for (row,) in server.rows(_PUBLISHED, name=publication)
    }
    if names:
        tables = [table_of(server, name) for name in names]
    else:  # the names of these may contain dots
        tables = [_table(server, f"{schema}.{name}", schema, name) for schema, name in parts]
    for table in tables:
        if (table.schema, table.name) not in parts:
            raise PipelineError(
                f"{server.place}: publication {publication} does not publish {table.full_name}; ALTER PUBLICATION "
                f"{quoted(publication)} ADD TABLE {table.full_name} before a job begins, or leave the table out"
            )
    return [_published(server, table, parts[table.schema, table.name]) for table in tables]


def _published(server: Server, table: SourceTable, part: dict[str, Any]) -> Published:
    names = part.get("attnames")
    columns = [
        Column(name, type_oid, False)
        for name, type_oid in server.rows(_COLUMNS, oid=table.oid)
        if names is None or name in names
    ]
    return Published(table, tuple(columns), part.get("rowfilter") or "")
