"""The process that follows a server's tables, forked so that it can be killed, and tables rebuilt from records."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.servers.postgres import Postgres
from causal.records.rows import listed
from operators.ingest.bound import LogBounds
from operators.ingest.ingested_source import log_of
from operators.source import SourceContext
from operators.sources import PostgresChanges
from operators.sources.postgres.changes_log import ChangesWriter
from operators.sources.postgres.feed import Feed, Options
from tests.faults.job import wait_for

SOURCE = "source"


class Follower:
    """A source's process without its job; it writes to the ingest log in a directory.

    Args:
        slot: the name of the slot and the publication that it creates.
        changed: replaces options of the source, also to values that users cannot pass.
    """

    def __init__(
        self,
        source: PostgresChanges,
        directory: Path,
        slot: str = "causal_test",
        bytes_max: int = 1 << 30,
        **changed: Any,
    ) -> None:
        self.directory = directory
        self._source = source
        self._slot = slot
        self._bytes_max = bytes_max
        self._options: Options = replace(source._options(), **changed)
        self._said = directory / "said"
        self._pid = 0
        self._reader: Any = source.open(0, SourceContext(SOURCE, directory, 0))
        self.records: list[Any] = []

    def start(self) -> Follower:
        """Start the process, which must not run."""
        assert not self._pid
        self._pid = os.fork()
        if self._pid == 0:
            self._become_the_process()
        return self

    def _become_the_process(self) -> None:
        status = 1
        try:
            os.dup2(os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            writer = ChangesWriter(log_of(self.directory, SOURCE), LogBounds(self._bytes_max))
            Feed(self._options, writer, SOURCE, self._slot, self.directory / "ingest" / SOURCE).run()
        except BaseException as problem:
            os.write(2, f"{type(problem).__name__}: {problem}\n".encode())
        finally:
            os._exit(status)

    @property
    def said(self) -> str:
        """The lines that the processes have printed."""
        return self._said.read_text() if self._said.exists() else ""

    def kill(self) -> None:
        """SIGKILL the process."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def ended(self) -> str:
        """Return the last line of the process, which ends on its own."""
        wait_for("it ends", lambda: os.waitpid(self._pid, os.WNOHANG)[0] != 0)
        self._pid = 0
        return self.said.splitlines()[-1]

    def until_says(self, words: str) -> None:
        """Wait until the process has printed these words."""
        wait_for(f"it says {words!r}", lambda: words in self.said)

    def read(self) -> list[Any]:
        """Return all records so far."""
        while (read := self._reader.read(len(self.records), 10_000)) is not None and read.records:
            self.records += list(listed(read.records))
        return self.records

    @property
    def lag(self) -> float | None:
        """The lag that the task of the source reports; None if it reports none."""
        lag: float | None = self._reader.counters().get("input_lag")
        return lag

    def until(self, holds: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until that holds for the records."""

        def looked() -> bool:
            if not holds(self.read()) and self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
                self._pid = 0
                raise AssertionError(self.said)
            return holds(self.records)

        wait_for("the records are there", looked)
        return self.records

    def until_same(self, server: Postgres, *tables: str) -> None:
        """Wait until the tables that the records describe are those of the server."""
        self.until(lambda records: all(rebuilt(records).get(f"public.{t}", {}) == rows_of(server, t) for t in tables))


def rebuilt(records: Iterable[Mapping[str, Any]], key: str = "k") -> dict[str, dict[Any, dict[str, Any]]]:
    """Return the rows by table and key; each record must follow from those before it."""
    tables: dict[str, dict[Any, dict[str, Any]]] = {}
    before: tuple[int, int] = (0, -1)
    for record in records:
        place = record["lsn"], record["number"]
        assert place > before, f"{record} comes after {before}"
        before = place
        rows, operation, after = tables.setdefault(record["table"], {}), record["operation"], record["after"]
        if operation == "truncate":
            rows.clear()
        elif operation == "delete":
            del rows[record["before"][key]]
        elif operation == "update":
            old = rows.pop((record["before"] or after)[key])
            rows[after[key]] = {**{name: old[name] for name in record.get("unchanged", [])}, **after}
        else:
            assert operation in ("snapshot", "insert") and after[key] not in rows, record
            rows[after[key]] = after
    return tables


def rows_of(server: Postgres, table: str, key: str = "k") -> dict[Any, dict[str, Any]]:
    """Return the rows of a table by key, with values as records hold them."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(server.dsn, row_factory=dict_row, options="-c timezone=UTC") as db:
        return {
            row[key]: {name: as_in_records(value) for name, value in row.items()}
            for row in db.execute(f"SELECT * FROM {table}")
        }


def as_in_records(value: Any) -> Any:
    """Return a value of the driver as a record holds it."""
    if isinstance(value, list):
        return [as_in_records(item) for item in value]
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return datetime.fromisoformat(value.isoformat())
    return str(value) if isinstance(value, UUID) else value
