"""A connection to PostgreSQL that never waits forever, configured so that an acknowledged commit is durable.

The server limits the duration of each statement, lock wait and idle transaction. These limits have no effect if the
server is stopped or the network is cut. Each wait of the client therefore also ends at a deadline, after which the
connection is closed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from causal.errors import PipelineError, Unavailable

VERSION_MIN = 120000
CONNECT_S = 2
_SESSION = """SELECT current_setting('server_version_num')::int, current_setting('fsync'),
    current_setting('full_page_writes'), coalesce(current_schema(), ''),
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
    set_config('statement_timeout', %(ms)s, false), set_config('lock_timeout', %(ms)s, false),
    set_config('idle_in_transaction_session_timeout', %(ms)s, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)"""


class Late(psycopg.OperationalError):  # type: ignore[misc]
    """The error for a server that did not answer in time, so that it is unknown whether it performed the request."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):  # type: ignore[misc]
    """A connection that raises `Late` once the deadline `deadline_s` (a `time.monotonic` value) has passed."""

    deadline_s = math.inf

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **named: Any) -> Any:
        """See psycopg; also checks the deadline ten times per second."""
        return super().wait(_until(self.deadline_s, gen), *arguments, **named)


def _until(deadline_s: float, waited: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    ready = None
    while True:
        try:
            wanted = waited.send(ready)
        except StopIteration as ended:
            return ended.value
        ready = yield wanted
        # The wait ended without anything to read, and the deadline has passed.
        if not ready and time.monotonic() > deadline_s:
            raise Late("the server does not answer")


@dataclass(frozen=True, slots=True)
class Session:
    """A connection, and the schema to which unqualified names refer."""

    db: BoundedConnection
    schema: str


_NO_DSN = (
    'dsn is not a connection string; use one like "postgresql://user@host/db", with special characters of a password '
    "as in a URL (%40 for @), or better with PGPASSFILE"
)
"""The message of an unusable dsn, which shows nothing of it: any part may belong to a password."""


def parsed(dsn: str) -> dict[str, Any]:
    """Return the parts of a connection string; raise `PipelineError` if `dsn` is not one."""
    try:
        options = dict(conninfo_to_dict(dsn))
    except (psycopg.Error, TypeError):
        raise PipelineError(_NO_DSN) from None
    port = str(options.get("port") or "")
    if not all(each.isdecimal() for each in port.split(",") if each) or "@" in str(options.get("host") or ""):
        raise PipelineError(_NO_DSN)
    return options


def place_of(dsn: str) -> str:
    """Return the name of the server for messages, without the password."""
    options = parsed(dsn)
    host, port, name = (str(options.get(key) or "") for key in ("host", "port", "dbname"))
    if host.startswith("/"):
        return f"PostgreSQL {name or '(default)'} at {host}" + (f" port {port}" if port else "")
    return f"PostgreSQL {name or '(default)'} at {host or '(default)'}" + (f":{port}" if port else "")


def connected(dsn: str, timeout_ms: int, durability: str, place: str) -> Session:
    """Connect to the server; raises errors of psycopg, `Unavailable` or `PipelineError`.

    Commits are always synchronous, whatever the role's default, because an asynchronous commit is lost if a single
    process of the server is killed.
    """
    defaults = {
        "application_name": "causal", "connect_timeout": CONNECT_S, "client_encoding": "UTF8",
        "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": timeout_ms,
    }  # fmt: skip
    db = BoundedConnection.connect(make_conninfo("", **{**defaults, **parsed(dsn)}), autocommit=True)
    try:
        db.deadline_s = time.monotonic() + timeout_ms / 1000
        row = db.execute(_SESSION, {"ms": str(timeout_ms)}).fetchone()
        version, fsync, full_page_writes, schema, read_only = row[:5]
        if version < VERSION_MIN:
            raise PipelineError(f"{place} is version {version // 10000}; at least 12 is needed")
        if durability == "os" and "off" in (fsync, full_page_writes):
            raise PipelineError(
                f"{place}: fsync or full_page_writes is off, so nothing survives a loss of power; turn them on, "
                'or set durability="process"'
            )
        if read_only:
            raise Unavailable(
                f"{place} accepts no writes because it is a standby or read-only; use the address of the primary"
            )
        return Session(db, schema)
    except BaseException:
        db.close()
        raise
