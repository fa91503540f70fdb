"""The process that copies tables, then their changes, to the ingest log, and confirms these to the server.

* *Snapshot.* The server creates the slot and, in the same step, a snapshot of the tables at the place from which the
  slot's changes follow. All rows of the snapshot are one batch of the log, published at its end. If this process, its
  connection or the server dies before that, nothing of it exists for the job: slot and rows are removed, and the
  next attempt takes another snapshot.
* *Changes.* A batch contains whole transactions, or a part of a large one, with a note of the position that it reaches.
  Only a published note is confirmed, so the server keeps everything else, and sends it again after any failure.
  `Changes` passes over the stored ones.
* *The server is unavailable.* Connections are made again, with pauses up to `PAUSE_S_MAX`, for as long as the job runs.
* *The job is slow.* While more than `ingest_bytes_max` are unread, nothing is published or confirmed; the server keeps
  its write-ahead log, up to `max_slot_wal_keep_size` or `wal_bytes_max`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from causal.errors import CorruptData, PipelineError, Unavailable
from operators.sources.postgres import publications, replication_slots
from operators.sources.postgres.change_records import Changes, Note, Position, Table, note_of, snapshot_entries
from operators.sources.postgres.changes_log import ChangesWriter, note_lag
from operators.sources.postgres.pgoutput import Keepalive, Malformed, confirmation, received
from operators.sources.postgres.source_connection import Server, ServerUnavailable, SlotInUse, Stream, lsn_of, shown

BATCH_BYTES = 1 << 22
"""The size of the records above which a batch is published, even within a transaction."""
GATHER_S = 0.02
"""The time for which more changes are waited for: a batch costs a few writes that reach the disk."""
CONFIRM_S = 10.0
"""The interval between two confirmations, and between two notes of a stream without changes of the tables."""
LOOK_S = 5.0
"""The interval between two looks at what the server keeps for the slot."""
SILENCE_S = 60.0
"""The silence after which the connection is given up; the server answers each confirmation."""
PAUSE_S, PAUSE_S_MAX = 0.1, 10.0
"""The first and the longest pause before the server is tried again."""
SLOT_WAIT_S = 90.0
"""The longest wait for a slot that another session uses: the server may take a minute to notice that it has ended."""
SLOT_CREATED_S = 600.0
"""The longest wait for a new slot, which comes when the transactions have ended that run at that moment."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the source; see `PostgresChanges`."""

    dsn: str
    place: str
    tables: tuple[str, ...]
    snapshot: bool
    slot: str | None
    publication: str | None
    operations: tuple[str, ...]
    row_bytes_max: int
    wal_bytes_max: int | None


class Feed:
    """The only process that writes the changes of one source to its log.

    Args:
        name: the name of the source.
        own_name: the name of the slot and the publication, if the source creates them.
        folder: where the lag is written for the source's task.
    """

    def __init__(self, options: Options, writer: ChangesWriter, name: str, own_name: str, folder: Path) -> None:
        self._options = options
        self._writer = writer
        self._name = name
        self._own_name = own_name
        self._folder = folder
        self._pause_s = PAUSE_S
        self._slot_in_use_s = 0.0

    def run(self) -> None:
        """Copy changes; this method ends only by raising an exception."""
        while True:
            try:
                self._attempt()
            except SlotInUse as problem:
                since_s = self._slot_in_use_s = self._slot_in_use_s or time.monotonic()
                if time.monotonic() - since_s > SLOT_WAIT_S:
                    raise PipelineError(
                        f"{problem}; end the job or program that reads from it, or SELECT pg_terminate_backend(…)"
                    ) from None
                self._retry(problem)
            except ServerUnavailable as problem:
                self._retry(problem)
            except Malformed as problem:
                raise CorruptData(
                    f"{self._options.place} sent what is not logical replication, so nothing of it is used: {problem}"
                ) from None

    def _retry(self, problem: ServerUnavailable) -> None:
        self._say(f"{problem}; it is tried again in {self._pause_s:.1f} s")
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._writer.start_over()

    def _attempt(self) -> None:
        server = Server(self._options.dsn, self._options.place)
        try:
            kept = publications.check_server(server)
            stream = Stream(self._options.dsn, self._options.place)
            try:
                system, _, _, database = stream.asked("IDENTIFY_SYSTEM")
                note = note_of(self._writer.note)
                if note is None:
                    self._warn(server, kept)
                    note = self._begun(server, stream, system, database)
                else:
                    self._check_resumed(server, note, system, database)
                publication = self._options.publication or note.slot
                oids = {each.table.oid for each in self._published(server, publication)}
                is_read = oids.__contains__ if self._options.tables and self._options.publication else _always
                stream.begin(note.slot, note.position.lsn, publication)
                self._slot_in_use_s = 0.0
                _Streaming(self, server, stream, note, is_read).run()
            finally:
                stream.close()
        finally:
            server.close()

    def _published(self, server: Server, publication: str) -> list[publications.Published]:
        return publications.published(server, publication, self._options.tables)

    def _check_resumed(self, server: Server, note: Note, system: str, database: str) -> None:
        if self._options.slot not in (None, note.slot):
            raise PipelineError(
                f"source {self._name!r} has read from slot {note.slot}, not {self._options.slot}; name that one, or "
                "use a new --state-dir"
            )
        slot = replication_slots.usable(server, note.slot, database)
        replication_slots.check_continues(server, slot, note, system)
        replication_slots.check_free(server, note.slot, slot)

    # -- the beginning -----------------------------------------------------------------------------------------

    def _begun(self, server: Server, stream: Stream, system: str, database: str) -> Note:
        """Publish what comes before the first change, and return its note."""
        options = self._options
        if options.slot is not None:
            slot = replication_slots.usable(server, options.slot, database)
            replication_slots.check_free(server, options.slot, slot)
            note = Note(system, options.slot, Position(slot.confirmed_lsn))
            self._writer.publish((), note.text(), lambda: None)
            return note
        replication_slots.drop(server, self._own_name)
        if options.publication is None:
            tables = [publications.table_of(server, name) for name in options.tables]
            if {"update", "delete"} & set(options.operations):
                for table in tables:
                    publications.check_identity(server, table)
            publications.create(server, self._own_name, tables, options.operations)
        everything = self._published(server, options.publication or self._own_name)
        row = stream.asked(
            f"CREATE_REPLICATION_SLOT \"{self._own_name}\" LOGICAL pgoutput (SNAPSHOT 'export')"
            if server.db.info.server_version >= 150000
            else f'CREATE_REPLICATION_SLOT "{self._own_name}" LOGICAL pgoutput EXPORT_SNAPSHOT',
            SLOT_CREATED_S,
        )
        note = Note(system, self._own_name, Position(lsn_of(row[1])))
        if options.snapshot:
            self._say(f"slot {note.slot} begins at {row[1]}; the rows of {len(everything)} tables are copied first")
            rows = self._writer.stage_entries(self._rows(server, row[2], everything, note.position.lsn))
            self._say(f"{rows:,} rows were copied")
        self._writer.publish_staged(note.text())
        return note

    def _rows(
        self, server: Server, snapshot: str, everything: Sequence[publications.Published], lsn: int
    ) -> Iterator[bytes]:
        """Yield the encoded records of the tables as the snapshot shows them."""
        server.rows("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        server.rows(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        [(taken_at_s,)] = server.rows("SELECT extract(epoch FROM now())::float8")
        number = 0
        for each in everything:
            table = Table(each.table.schema, each.table.name, each.columns)
            rows = server.copied(each.query)
            for entry in snapshot_entries(table, rows, number, lsn, taken_at_s, self._options.row_bytes_max):
                yield entry
                number += 1
        server.rows("COMMIT")

    def _warn(self, server: Server, kept: str) -> None:
        replication_slots.warn_of_idle_slots(server, self._own_name, self._name)
        if kept == "-1" and self._options.wal_bytes_max is None:
            self._say(
                f"{self._options.place} keeps its write-ahead log without a bound while this job does not run or is "
                "slow; ALTER SYSTEM SET max_slot_wal_keep_size, or pass wal_bytes_max"
            )

    def _say(self, line: str) -> None:
        print(f"source {self._name!r}: {line}", file=sys.stderr, flush=True)


def _always(oid: int) -> bool:
    return True


class _Streaming:
    """One connection's stream of changes."""

    def __init__(self, feed: Feed, server: Server, stream: Stream, note: Note, is_read: Callable[[int], bool]) -> None:
        self._feed = feed
        self._options = feed._options
        self._server = server
        self._stream = stream
        self._note = note
        self._changes = Changes(is_read, note.position, self._options.row_bytes_max)
        now_s = time.monotonic()
        self._heard_s = now_s
        self._confirmed_s = now_s
        self._looked_s = 0.0
        self._noted_s = now_s
        self._gathering_s = 0.0
        """The time at which the first record that is not published arrived; 0 if there is none."""
        self._broken: Unavailable | None = None
        """The failure of the connection during a wait for room."""

    def run(self) -> None:
        while True:
            self._receive()
            now_s = time.monotonic()
            if self._is_due(now_s):
                self._publish()
            if now_s - self._confirmed_s >= CONFIRM_S:
                self._confirm()
                self._feed._pause_s = PAUSE_S
            if now_s - self._looked_s >= LOOK_S:
                self._look()
            if now_s - self._heard_s > SILENCE_S:
                raise ServerUnavailable(f"{self._options.place} has not answered for {SILENCE_S:g} s")

    def _receive(self) -> None:
        """Take what has arrived; wait for more if that is nothing."""
        count = 0
        while self._changes.bytes < BATCH_BYTES:
            data = self._stream.received()
            if data is None:
                break
            count += 1
            message = received(data)
            if isinstance(message, Keepalive):
                self._changes.reached(message.lsn)
                if message.wants_answer:
                    self._confirm(wants_answer=False)
            else:
                self._changes.add(message)
        if count:
            self._heard_s = time.monotonic()
            if self._changes.bytes and not self._gathering_s:
                self._gathering_s = self._heard_s
        if self._changes.bytes < BATCH_BYTES:
            self._stream.wait(GATHER_S / 2 if self._gathering_s else 1.0)

    def _is_due(self, now_s: float) -> bool:
        if self._changes.bytes >= BATCH_BYTES:
            return True
        if not self._changes.between_transactions:
            return False
        if self._changes.bytes:
            return now_s - self._gathering_s >= GATHER_S
        return now_s - self._noted_s >= CONFIRM_S and self._changes.position != self._note.position

    def _publish(self) -> None:
        note = Note(self._note.system, self._note.slot, self._changes.position)
        self._feed._writer.publish(self._changes.take(), note.text(), self._meanwhile)
        self._note = note
        self._gathering_s = 0.0
        self._feed._pause_s = PAUSE_S
        self._noted_s = self._heard_s = time.monotonic()
        if self._broken is not None:
            raise self._broken
        self._confirm()

    def _confirm(self, wants_answer: bool = True) -> None:
        """Send the place that the log reaches; the server may remove its write-ahead log before that."""
        self._stream.send(confirmation(self._note.position.lsn, time.time_ns() // 1000, wants_answer))
        self._confirmed_s = time.monotonic()

    def _meanwhile(self) -> None:
        """Keep the connection while the job makes room; if that fails, the batch is published all the same."""
        if self._broken is not None:
            return
        now_s = time.monotonic()
        try:
            if now_s - self._confirmed_s >= CONFIRM_S:
                self._confirm(wants_answer=False)
            if now_s - self._looked_s >= LOOK_S:
                self._look()
        except ServerUnavailable as problem:
            self._broken = problem

    def _look(self) -> None:
        """Write down how far the job is behind, and enforce the bound on what the server keeps."""
        self._looked_s = time.monotonic()
        slot = replication_slots.slot_of(self._server, self._note.slot)
        if slot is None:
            raise PipelineError(f"{self._options.place}: slot {self._note.slot} was dropped; use a new --state-dir")
        note_lag(self._feed._folder, slot.kept_bytes, slot.behind_bytes)
        bound = self._options.wal_bytes_max
        if bound is not None and slot.kept_bytes > bound:
            self._stream.close()
            self._drop()
            raise PipelineError(
                f"{self._options.place} kept {slot.kept_bytes:,} bytes of its write-ahead log for slot "
                f"{self._note.slot}, more than wal_bytes_max ({bound:,}), so the slot was dropped: the job has read up "
                f"to {shown(self._note.position.lsn)}; make it faster, and use a new --state-dir"
            )

    def _drop(self) -> None:
        deadline_s = time.monotonic() + SLOT_WAIT_S
        while True:
            try:
                return replication_slots.drop(self._server, self._note.slot)
            except SlotInUse:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(PAUSE_S)
