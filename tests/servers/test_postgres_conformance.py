"""PostgresChanges keeps every promise of the kit for sources, with a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.postgres import Postgres
from causal.records.values import decode
from operators.ingest.bound import LogBounds
from operators.ingest.entry_log import entries_of
from operators.ingest.ingested_source import log_of
from operators.sources import PostgresChanges, conformance
from operators.sources.conformance import Subject, deaths, positions
from operators.sources.postgres.changes_log import ChangesWriter
from operators.sources.postgres.feed import Feed
from tests.members import members
from tests.servers.following import SOURCE, Follower

CHANGES = 15


@pytest.mark.parametrize(
    "check", members(conformance.CHECKS, positions.reads_every_element_once), ids=lambda check: check.__name__
)
def test_the_source_keeps_every_promise(
    check: Callable[[Subject], None], logical_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "LIFE_S_MAX", 1.0)  # a process first connects
    server = logical_postgres
    server.query("CREATE TABLE t(k int PRIMARY KEY, v text)")
    server.query("INSERT INTO t SELECT i, repeat('ü', i) FROM generate_series(1, 15) i")
    source = PostgresChanges(server.dsn, ["t"])

    def change(first: int) -> None:
        """Insert rows one by one while another process stores them."""
        follower = Follower(source, tmp_path).start()
        try:
            follower.until_says("rows were copied")
            for k in range(first, first + CHANGES):
                server.query("INSERT INTO t VALUES (%s, 'later')", k)
            follower.until_same(server, "t")
        finally:
            follower.kill()

    def ingest(say: Callable[[Any], None]) -> None:
        writer = Saying(log_of(tmp_path, SOURCE), say)
        Feed(source._options(), writer, SOURCE, "causal_test", tmp_path / "ingest" / SOURCE).run()

    def transact() -> None:
        """Insert rows as long as the check runs."""
        k = 1000
        while not done.wait(0.01):
            server.query("INSERT INTO t VALUES (%s, 'much later')", k := k + 1)

    change(100)
    subject = Subject(
        lambda: PostgresChanges(server.dsn, ["t"]), lambda partition: stored(tmp_path), tmp_path,
        extend=lambda: change(200), ingest=ingest,
    )  # fmt: skip
    done = threading.Event()
    busy = threading.Thread(target=transact)
    if check is deaths.has_what_it_acknowledged:
        busy.start()
    try:
        check(subject)
    finally:
        done.set()
        if busy.ident is not None:
            busy.join()
    assert check is not deaths.has_what_it_acknowledged or len(stored(tmp_path)) > 2 * CHANGES


class Saying(ChangesWriter):
    """A writer that reports stored changes, which the feed then confirms to the server."""

    def __init__(self, log: Any, say: Callable[[Any], None]) -> None:
        super().__init__(log, LogBounds())
        self._say = say

    def publish(self, entries: Iterable[bytes], note: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        written = list(entries)
        super().publish(written, note, meanwhile)
        for entry in written:
            self._say(decode(entry))


def stored(directory: Path) -> list[Any]:
    """Return the records of all segments in their order."""
    log = log_of(directory, SOURCE)
    manifests = [manifest for batch in log.batches() if (manifest := log.manifest(batch)) is not None]
    segments = [segment for manifest in manifests for segment in manifest.segments if segment.rows]
    return [record for segment in segments for record in entries_of(log.supply([segment]), segment, log)]
