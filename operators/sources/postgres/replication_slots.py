"""The replication slot from which a source reads: the server keeps the write-ahead log for it until it is dropped.

A slot is used only if it continues exactly where the ingest log ends. If it was dropped, has lost a part of the
write-ahead log, or was read by another program, changes are missing, and the job ends with one line.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from hashlib import blake2b

from causal.errors import PipelineError
from operators.sources.postgres.change_records import Note
from operators.sources.postgres.source_connection import Server, SlotInUse, shown

PREFIX = "causal_"
_NAME_CHARACTERS_MAX = 63
_BEGIN_AGAIN = "begin again with a new --state-dir, which reads the tables first"
_SLOT = """SELECT plugin::text, database::text, active, active_pid, wal_status,
    coalesce((confirmed_flush_lsn - '0/0'::pg_lsn)::bigint, 0),
    coalesce((pg_current_wal_lsn() - restart_lsn)::bigint, 0), (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint
    FROM pg_replication_slots WHERE slot_name = %(slot)s"""
_IDLE = """SELECT slot_name::text, coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint FROM pg_replication_slots
    WHERE slot_name ~ '^causal_' AND plugin = 'pgoutput' AND database = current_database() AND NOT active
    AND slot_name <> %(slot)s ORDER BY 2 DESC LIMIT 10"""


def name_of(job: str, source: str, run: str) -> str:
    """Return the name of the slot and of the publication of a source, which no other run uses."""
    mark = blake2b(f"{run}/{source}".encode(), digest_size=4).hexdigest()
    plain = re.sub("[^a-z0-9_]", "_", f"{PREFIX}{job}_{source}".lower())
    return f"{plain[: _NAME_CHARACTERS_MAX - len(mark) - 1]}_{mark}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as the server reports it.

    Attributes:
        active_pid: the process of the server that uses it; 0 for none.
        wal_status: "lost" if the server has removed a part of the write-ahead log that the slot needs.
        confirmed_lsn: the place up to which everything was confirmed.
        kept_bytes: the size of the write-ahead log that the server keeps for it.
        server_lsn: the end of the server's write-ahead log.
    """

    plugin: str
    database: str
    active_pid: int
    wal_status: str
    confirmed_lsn: int
    kept_bytes: int
    server_lsn: int

    @property
    def behind_bytes(self) -> int:
        """The size of the write-ahead log that was not confirmed."""
        return max(self.server_lsn - self.confirmed_lsn, 0)


def slot_of(server: Server, name: str) -> Slot | None:
    """Return the slot with this name, or None if there is none."""
    for plugin, database, active, pid, status, confirmed, kept, end in server.rows(_SLOT, slot=name):
        return Slot(plugin or "", database or "", pid or 0 if active else 0, status or "", confirmed, kept, end)
    return None


def drop(server: Server, name: str) -> None:
    """Drop the slot, if it exists and no session uses it."""
    slot = slot_of(server, name)
    if slot is not None:
        check_free(server, name, slot)
        server.rows("SELECT pg_drop_replication_slot(%(slot)s)", slot=name)


def check_free(server: Server, name: str, slot: Slot) -> None:
    """Raise `SlotInUse` if a session uses the slot."""
    if slot.active_pid:
        raise SlotInUse(f"{server.place}: slot {name} is used by process {slot.active_pid} of the server")


def usable(server: Server, name: str, database: str) -> Slot:
    """Return the slot; raise `PipelineError` if no changes of this database can be read from it, now or later."""
    slot = slot_of(server, name)
    if slot is None:
        raise PipelineError(f"{server.place}: slot {name} does not exist; {_BEGIN_AGAIN}")
    if slot.wal_status == "lost":
        raise PipelineError(
            f"{server.place}: slot {name} has lost changes, because the server removed its write-ahead log "
            f"(max_slot_wal_keep_size); SELECT pg_drop_replication_slot('{name}'), and {_BEGIN_AGAIN}"
        )
    if slot.plugin != "pgoutput" or slot.database != database:
        raise PipelineError(
            f"{server.place}: slot {name} is one of {slot.plugin or 'physical replication'} of database "
            f"{slot.database or '(any)'}; use one of pgoutput of {database}"
        )
    return slot


def check_continues(server: Server, slot: Slot, note: Note, system: str) -> None:
    """Raise `PipelineError` unless the slot continues where the log ends."""
    if note.system != system:
        raise PipelineError(
            f"{server.place} is another server than the one that the job has read: system {system}, not "
            f"{note.system}; correct the dsn, or {_BEGIN_AGAIN}"
        )
    if slot.confirmed_lsn > note.position.lsn:
        raise PipelineError(
            f"{server.place}: slot {note.slot} was confirmed up to {shown(slot.confirmed_lsn)}, but the job has read "
            f"only up to {shown(note.position.lsn)}: another program has read from it; {_BEGIN_AGAIN}"
        )
    if slot.server_lsn < note.position.lsn:
        raise PipelineError(
            f"{server.place} ends at {shown(slot.server_lsn)}, but the job has read up to "
            f"{shown(note.position.lsn)}: it was restored from a copy, or is a standby that lagged; {_BEGIN_AGAIN}"
        )


def warn_of_idle_slots(server: Server, own: str, say_of: str) -> None:
    """Print a line for each slot of another job that is not running, because the server's disk fills for it."""
    for name, kept_bytes in server.rows(_IDLE, slot=own):
        print(
            f"source {say_of!r}: {server.place}: slot {name}, whose job is not running, keeps {kept_bytes:,} bytes of "
            f"the write-ahead log; if it will not be resumed: SELECT pg_drop_replication_slot('{name}'); "
            f"DROP PUBLICATION IF EXISTS {name}",
            file=sys.stderr,
            flush=True,
        )
