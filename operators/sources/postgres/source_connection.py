"""The connections of a source to its server, and what their errors mean for it.

One connection asks questions in SQL, another one streams the changes. Neither waits forever, and no message contains
the connection string, which may hold a password.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import generators, pq
from psycopg.conninfo import make_conninfo

from causal.errors import CausalError, PipelineError, Unavailable
from operators.sinks.postgres.postgres_connection import CONNECT_S, BoundedConnection, parsed
from operators.sinks.postgres.postgres_errors import one_line, translated

ANSWER_S = 30.0
"""The longest wait for the answer to a question."""
_OPTIONS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3 "
    "-c row_security=off -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""The form of values that `column_values` reads; rows that a policy hides are an error instead of a gap."""
_REMEDIES = {
    "42501": "grant the role the missing privilege",
    "42704": "restore it, or begin again with a new --state-dir",
    "53400": "raise max_replication_slots, or drop a slot that no one uses",
    "55000": "begin again with a new --state-dir",
}
"""State of an error that comes again → what to do."""
_NO_ROLE = ("WAL sender", "replication role", "REPLICATION attribute", "replication slots")
"""Parts of the messages of a role that may not replicate."""


class ServerUnavailable(Unavailable):
    """The server does not answer, or has ended the connection; another connection can continue."""


class SlotInUse(ServerUnavailable):
    """Another session uses the slot."""


def explained(problem: psycopg.Error, place: str) -> CausalError:
    """Return the project's error, with a remedy, for an error of the server."""
    state, words = problem.sqlstate, one_line(problem)
    if any(part in words for part in _NO_ROLE) and ("permission" in words or "must be" in words):
        return PipelineError(f"{place}: {words}; ALTER ROLE … REPLICATION, or use another role")
    if state == "55006":
        return SlotInUse(f"{place}: {words}")
    if state in _REMEDIES:
        return PipelineError(f"{place}: {words} ({state}); {_REMEDIES[state]}")
    error = translated(problem, place)
    return ServerUnavailable(str(error)) if isinstance(error, Unavailable) else error


@contextmanager
def errors_explained(place: str) -> Iterator[None]:
    """Raise the project's errors instead of those of psycopg."""
    try:
        yield
    except psycopg.Error as problem:
        raise explained(problem, place) from None


class Server:
    """Questions to a server.

    Args:
        place: the name of the server for messages.
    """

    def __init__(self, dsn: str, place: str) -> None:
        self.place = place
        with errors_explained(place):
            self.db = _connected(dsn)

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of an answer; [] for a command."""
        self.db.deadline_s = time.monotonic() + ANSWER_S
        with errors_explained(self.place):
            cursor = self.db.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []

    def copied(self, query: str) -> Iterator[tuple[str | None, ...]]:
        """Yield the rows that a query copies, as texts."""
        with errors_explained(self.place), self.db.cursor() as cursor:
            self.db.deadline_s = time.monotonic() + ANSWER_S
            with cursor.copy(query) as copy:
                for row in copy.rows():
                    yield row
                    self.db.deadline_s = time.monotonic() + ANSWER_S

    def close(self) -> None:
        """Close the connection."""
        self.db.close()


class Stream:
    """A connection on which the server sends changes."""

    def __init__(self, dsn: str, place: str) -> None:
        self.place = place
        with errors_explained(place):
            self._db = _connected(dsn, replication="database")
        self._pg = self._db.pgconn

    def asked(self, command: str, within_s: float = ANSWER_S) -> tuple[str, ...]:
        """Return the first row of the answer to a replication command; () for none."""
        self._db.deadline_s = time.monotonic() + within_s
        with errors_explained(self.place):
            row = self._db.execute(command).fetchone()
            return tuple(str(value) for value in row or ())

    def begin(self, slot: str, lsn: int, publication: str) -> None:
        """Start the stream of transactions that were committed after `lsn`."""
        names = publication.replace('"', '""').replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{slot}" LOGICAL {shown(lsn)} '
            f"(proto_version '1', publication_names '\"{names}\"')"
        )
        self._db.deadline_s = time.monotonic() + ANSWER_S
        with errors_explained(self.place):
            self._pg.send_query(command.encode())
            for result in self._db.wait(generators.execute(self._pg)):
                if result.status != pq.ExecStatus.COPY_BOTH:
                    raise psycopg.errors.error_from_result(result)
            self._pg.nonblocking = 1

    def received(self) -> bytes | None:
        """Return the next message that has arrived, or None.

        Raises:
            ServerUnavailable: the server has ended the stream.
        """
        with errors_explained(self.place):
            size, data = self._pg.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size == 0:
                return None
            result = self._pg.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
            raise ServerUnavailable(f"{self.place} has ended the stream of changes; start it, or check the network")

    def wait(self, timeout_s: float) -> None:
        """Wait until something has arrived, or for `timeout_s`."""
        if select.select([self._pg.socket], [], [], timeout_s)[0]:
            with errors_explained(self.place):
                self._pg.consume_input()

    def send(self, message: bytes) -> None:
        """Send a message; what the network does not accept now is sent with a later one."""
        with errors_explained(self.place):
            self._pg.put_copy_data(message)
            self._pg.flush()

    def close(self) -> None:
        """Close the connection without waiting for the end of the stream."""
        self._pg.finish()


def _connected(dsn: str, **more: str) -> BoundedConnection:
    options = parsed(dsn)
    options["options"] = f"{options.get('options') or ''} {_OPTIONS}".strip()
    defaults = {
        "application_name": "causal", "connect_timeout": CONNECT_S, "keepalives_idle": 5, "keepalives_interval": 2,
        "keepalives_count": 3,
    }  # fmt: skip
    conninfo = make_conninfo("", **{**defaults, **options, "client_encoding": "UTF8", **more})
    connection: BoundedConnection = BoundedConnection.connect(conninfo, autocommit=True)
    return connection


def shown(lsn: int) -> str:
    """Return a place in the write-ahead log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return the place in the write-ahead log that PostgreSQL writes like this."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
