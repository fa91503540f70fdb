"""Changes per second of `PostgresChanges`, from the server's write-ahead log into the ingest log.

    python -m benchmarks.throughput.postgres_changes [ROWS [ROWS_PER_TRANSACTION]]

Rows are inserted while nothing reads; the time is that from the start of the reading process to its last batch.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.processes import wait_for
from benchmarks.servers.postgres import Postgres, cluster, postgres
from operators.ingest.bound import LogBounds
from operators.ingest.ingest_log import IngestLog
from operators.ingest.ingested_source import log_of
from operators.sources import PostgresChanges
from operators.sources.postgres.changes_log import ChangesWriter
from operators.sources.postgres.feed import Feed

TABLE = "CREATE TABLE t(k int PRIMARY KEY, v text, n numeric, at timestamptz DEFAULT now(), ok bool DEFAULT true)"
INSERT = "INSERT INTO t(k, v, n) SELECT i, 'value ' || i, i * 1.25 FROM generate_series(%s::int, %s) i"


def published(log: IngestLog) -> int:
    """Return the number of records in the log."""
    batches = log.batches()
    last = log.manifest(batches[-1]) if batches else None
    return last.after()[0] if last is not None else -1


def reading(server: Postgres, directory: Path) -> int:
    """Return a process that reads the table's changes into the log in the directory."""
    pid = os.fork()
    if pid == 0:
        try:
            options = PostgresChanges(server.dsn, ["t"])._options()
            Feed(
                options, ChangesWriter(log_of(directory, "t"), LogBounds(1 << 34)), "t", "causal_bench", directory
            ).run()
        finally:
            os._exit(1)
    return pid


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def measured(rows: int, rows_per_transaction: int) -> float:
    """Return the changes per second of one run, on a server of its own."""
    with (
        cluster() as template,
        postgres(template, wal_level="logical", shared_buffers="128MB") as server,
        tempfile.TemporaryDirectory() as name,
    ):
        log = log_of(Path(name), "t")
        server.query(TABLE)
        pid = reading(server, Path(name))
        wait_for("the slot is there", lambda: published(log) == 0, 60)
        stop(pid)
        for begin in range(0, rows, rows_per_transaction):
            server.query(INSERT, begin, min(begin + rows_per_transaction, rows) - 1)
        began_s = time.monotonic()
        pid = reading(server, Path(name))
        wait_for("all changes are there", lambda: published(log) >= rows, 600)
        seconds = time.monotonic() - began_s
        stop(pid)
        return rows / seconds


def main(rows: int, rows_per_transaction: int) -> None:
    """Measure once and print one line."""
    per_s = measured(rows, rows_per_transaction)
    print(f"{rows:,} changes, {rows_per_transaction:,} per transaction: {per_s:,.0f}/s")


if __name__ == "__main__":
    main(int((sys.argv[1:2] or ["100000"])[0]), int((sys.argv[2:3] or ["100"])[0]))
