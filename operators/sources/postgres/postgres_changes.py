"""The changes of tables of a PostgreSQL database as a source: first what they contain, then each change, once.

A process next to the job writes them to the ingest log (`operators.sources.postgres.feed`), and confirms to the server
only what this log contains. Records are described in `operators.sources.postgres.change_records`.

    PostgresChanges("postgresql://user@host/shop", ["orders", "billing.invoices"])

Needs psycopg 3.3 (extra `postgres`), PostgreSQL 13 or later with wal_level = logical, and a role that may replicate.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from causal.config import JobConfig
from causal.errors import PipelineError, Unavailable, invariant
from operators.graph import caller
from operators.ingest.bound import LogBounds
from operators.ingest.ingest_log import IngestLog
from operators.ingest.ingested_source import IngestedSource
from operators.ingest.place import FOLDER, IngestPlace
from operators.source import PartitionReader, SourceContext
from operators.stage.unreadable import SET_ASIDE

if TYPE_CHECKING:
    from operators.sources.postgres.feed import Options

OPERATIONS = ("insert", "update", "delete", "truncate")
TABLES_MAX = 1000


class PostgresChanges(IngestedSource):
    """A source of the changes of tables, in the order of their commits. It never ends.

    Args:
        dsn: a libpq connection string, such as "postgresql://user@host/db". Missing parts are taken from the
            environment (PGHOST, PGPASSFILE, …), which is also the better place for passwords.
        tables: "name" or "schema.name" of each table; a partitioned table stands for all its partitions. With
            `publication`, [] means all of its tables.
        snapshot: whether the rows that the tables contain at the beginning come first, as records "snapshot".
        slot: an existing slot of `pgoutput`, from which changes are read from where it stands, without a snapshot; by
            default, the source creates one.
        publication: an existing publication; by default, the source creates one of `tables`.
        operations: the operations that a publication of the source publishes.
        row_bytes_max: the maximum size of a record; a larger one becomes a bad row.
        wal_bytes_max: the size of the write-ahead log that the server may keep for the slot while the job runs; above
            it, the slot is dropped and the job ends. None leaves this to the server (`max_slot_wal_keep_size`).
    """

    records_name = "changes"
    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE

    def __init__(
        self,
        dsn: str,
        tables: Sequence[str] = (),
        *,
        snapshot: bool = True,
        slot: str | None = None,
        publication: str | None = None,
        operations: Sequence[str] = OPERATIONS,
        row_bytes_max: int = 8 << 20,
        wal_bytes_max: int | None = None,
    ) -> None:
        self._where = f"{caller()}: PostgresChanges"
        self.dsn = dsn
        self.tables = () if isinstance(tables, str) else tuple(tables)
        self.snapshot = snapshot
        self.slot = slot
        self.publication = publication
        self.operations = tuple(operations)
        self.row_bytes_max = row_bytes_max
        self.wal_bytes_max = wal_bytes_max
        self._check_tables(tables)
        if slot is not None and (snapshot or publication is None):
            raise PipelineError(
                f"{self._where}: an existing slot has no snapshot and needs its publication; pass snapshot=False and "
                "publication="
            )
        unknown = [each for each in self.operations if each not in OPERATIONS]
        if unknown or not self.operations or isinstance(operations, str):
            raise PipelineError(f"{self._where} has operations {operations!r}; use some of {', '.join(OPERATIONS)}")
        for name, value in (("slot", slot), ("publication", publication)):
            if value is not None and (type(value) is not str or not value):
                raise PipelineError(f"{self._where} has {name} {value!r}; use a name")
        if type(row_bytes_max) is not int or not 1 << 10 <= row_bytes_max <= 1 << 30:
            raise PipelineError(f"{self._where} has row_bytes_max {row_bytes_max!r}; use 1,024 to {1 << 30:,}")
        if wal_bytes_max is not None and (type(wal_bytes_max) is not int or wal_bytes_max < 1 << 26):
            raise PipelineError(f"{self._where} has wal_bytes_max {wal_bytes_max!r}; use at least {1 << 26:,}")

    def _check_tables(self, tables: Sequence[str]) -> None:
        if isinstance(tables, str):
            raise PipelineError(f"{self._where}: tables is one text; use a list of names, [{tables!r}]")
        if not self.tables and self.publication is None:
            raise PipelineError(f"{self._where} has no tables; name some, or a publication")
        if len(set(self.tables)) < len(self.tables) or len(self.tables) > TABLES_MAX:
            raise PipelineError(f"{self._where}: a table is named twice, or there are more than {TABLES_MAX:,}")
        for name in self.tables:
            if type(name) is not str or name.count(".") > 1 or not all(name.split(".")):
                raise PipelineError(f'{self._where}: table {name!r} is not a valid name; use "name" or "schema.name"')

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of the log, which may not exist yet."""
        from operators.sources.postgres.changes_log import ChangesReader

        invariant(partition == 0, "changes have one partition", partition=partition)
        place = IngestPlace(context.job_directory, context.name, 1)
        return ChangesReader(place.open_to_read(partition), context, place.directory)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in the dsn, the server's settings, the role or the tables.

        An unavailable server is no error here, only a line: the job will wait for it.
        """
        options = self._options()
        from operators.sources.postgres import publications
        from operators.sources.postgres.source_connection import Server, Stream

        try:
            server = Server(options.dsn, options.place)
            try:
                publications.check_server(server)
                if options.publication is not None:
                    publications.published(server, options.publication, options.tables)
                for table in [publications.table_of(server, name) for name in options.tables]:
                    if options.publication is None and {"update", "delete"} & set(options.operations):
                        publications.check_identity(server, table)
                Stream(options.dsn, options.place).close()
            finally:
                server.close()
        except Unavailable as problem:
            print(f"{self._where}: {problem}; the job waits for it", file=sys.stderr, flush=True)

    def store(self, log: IngestLog, bounds: LogBounds, job_directory: Path, root_pid: int) -> None:
        """Write changes to the log; this method ends only by raising an exception."""
        options = self._options()
        from operators.sources.postgres.changes_log import ChangesWriter
        from operators.sources.postgres.feed import Feed
        from operators.sources.postgres.replication_slots import name_of

        config = JobConfig.load(job_directory)
        own_name = name_of(config.name, log.name, config.run)
        writer = ChangesWriter(log, bounds)
        Feed(options, writer, log.name, own_name, job_directory / FOLDER / log.name).run()

    def _options(self) -> Options:
        try:
            import psycopg  # noqa: F401
        except ImportError as problem:
            raise PipelineError(
                f"PostgresChanges needs psycopg ({problem}); run `pip install -e '.[postgres]'` in the checkout"
            ) from None
        from operators.sinks.postgres.postgres_connection import place_of
        from operators.sources.postgres.feed import Options

        return Options(
            self.dsn,
            place_of(self.dsn),
            self.tables,
            self.snapshot,
            self.slot,
            self.publication,
            self.operations,
            self.row_bytes_max,
            self.wal_bytes_max,
        )
