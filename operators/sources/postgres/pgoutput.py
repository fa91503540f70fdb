"""The messages of PostgreSQL's logical replication (`pgoutput`, protocol version 1), parsed from their bytes.

The server sends only committed transactions, each as a whole, in the order of their commits: BEGIN, changes, COMMIT.
Before the first change of a table, and after each change of its columns, it sends a RELATION with their names and
types. Whatever the bytes, the result is a message or `Malformed`; nothing is read beyond the end of a message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

EPOCH_US: Final = 946_684_800_000_000
"""The time in µs since 1970 from which the server counts: 2000-01-01."""

_DATA, _KEEPALIVE = struct.Struct(">QQq"), struct.Struct(">QqB")
_BEGIN, _COMMIT, _STATUS = struct.Struct(">QqI"), struct.Struct(">BQQq"), struct.Struct(">cQQQqB")
_OID, _COUNT, _LENGTH, _COLUMN_TYPE = (
    struct.Struct(">I"),
    struct.Struct(">H"),
    struct.Struct(">I"),
    struct.Struct(">Ii"),
)
_TRUNCATE = struct.Struct(">IB")
_PASSED_OVER = b"OYM"
"""The messages without a change: the origin of a transaction, the name of a type, and what an application wrote."""


class Malformed(ValueError):
    """Raised for bytes that are no message of the protocol."""


class Unchanged:
    """The value of a large column that an update did not change, so that the server does not send it."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Values = list[str | None | Unchanged]
"""The texts of a row's values, in the order of the columns."""


@dataclass(frozen=True, slots=True)
class Data:
    """One message of the stream; `lsn` is the place in the write-ahead log of what it describes."""

    lsn: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The server has sent everything before `lsn`."""

    lsn: int
    wants_answer: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a transaction that was committed at `commit_lsn`."""

    commit_lsn: int
    committed_us: int
    transaction: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; later transactions have a `commit_lsn` of at least `end_lsn`."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; rows before a change always have it if `in_key`."""

    name: str
    type_oid: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is for the changes that follow."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """An inserted, updated or deleted row.

    Attributes:
        kind: "insert", "update" or "delete".
        key: the values before the change, of which only those of key columns are meant; None if they are not sent.
        before: the whole row before the change; None if it is not sent.
        after: the row after the change; None for a delete.
    """

    kind: str
    oid: int
    key: Values | None
    before: Values | None
    after: Values | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were emptied."""

    oids: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate


def received(data: bytes) -> Data | Keepalive:
    """Return what the server has sent in one unit of the stream."""
    try:
        if data[:1] == b"w":
            return Data(_DATA.unpack_from(data, 1)[0], data[1 + _DATA.size :])
        if data[:1] == b"k" and len(data) == 1 + _KEEPALIVE.size:
            lsn, _, wanted = _KEEPALIVE.unpack_from(data, 1)
            return Keepalive(lsn, bool(wanted))
    except struct.error:
        pass
    raise Malformed(f"{data[:20]!r} is neither data nor a sign of life")


def confirmation(lsn: int, now_us: int, wants_answer: bool = False) -> bytes:
    """Return the message that everything before `lsn` is stored durably; the server may forget it."""
    return _STATUS.pack(b"r", lsn, lsn, lsn, now_us - EPOCH_US, wants_answer)


def parsed(payload: bytes) -> Message | None:
    """Return the message, or None for one without a change.

    Raises:
        Malformed: the bytes are no message of protocol version 1.
    """
    try:
        return _parsed(payload)
    except (IndexError, UnicodeDecodeError, struct.error) as problem:
        raise Malformed(f"message {payload[:20]!r} of {len(payload):,} bytes is cut or damaged: {problem}") from None


def _parsed(payload: bytes) -> Message | None:
    kind = payload[:1]
    if kind in (b"I", b"U", b"D"):
        return _change(payload)
    if kind == b"B":
        return Begin(*_whole(_BEGIN, payload))
    if kind == b"C":
        _, commit_lsn, end_lsn, _ = _whole(_COMMIT, payload)
        return Commit(commit_lsn, end_lsn)
    if kind == b"R":
        return _relation(payload)
    if kind == b"T":
        count, _ = _TRUNCATE.unpack_from(payload, 1)
        begin = 1 + _TRUNCATE.size
        if len(payload) != begin + count * _OID.size:
            raise Malformed(f"a truncation of {count} tables has {len(payload)} bytes")
        return Truncate(tuple(oid for (oid,) in _OID.iter_unpack(payload[begin:])))
    if kind and kind in _PASSED_OVER:
        return None
    raise Malformed(f"message {payload[:20]!r} is of no known kind")


def _whole(layout: struct.Struct, payload: bytes) -> tuple[int, ...]:
    if len(payload) != 1 + layout.size:
        raise Malformed(f"message {payload[:1]!r} has {len(payload)} bytes, not {1 + layout.size}")
    return layout.unpack_from(payload, 1)


def _relation(payload: bytes) -> Relation:
    (oid,) = _OID.unpack_from(payload, 1)
    schema, at = _name(payload, 5)
    name, at = _name(payload, at)
    (count,) = _COUNT.unpack_from(payload, at + 1)  # after one byte for the replica identity
    at += 3
    columns = []
    for _ in range(count):
        in_key = bool(payload[at] & 1)
        column, at = _name(payload, at + 1)
        type_oid, _ = _COLUMN_TYPE.unpack_from(payload, at)
        at += _COLUMN_TYPE.size
        columns.append(Column(column, type_oid, in_key))
    if at != len(payload):
        raise Malformed(f"{len(payload) - at} bytes follow the columns of {schema}.{name}")
    return Relation(oid, schema or "pg_catalog", name, tuple(columns))


def _name(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.find(0, at)
    if end < 0:
        raise Malformed(f"a name of message {payload[:20]!r} has no end")
    return payload[at:end].decode(), end + 1


_KINDS = {b"I": "insert", b"U": "update", b"D": "delete"}


def _change(payload: bytes) -> Change:
    kind = _KINDS[payload[:1]]
    (oid,) = _OID.unpack_from(payload, 1)
    part, at = payload[5], 6
    key: Values | None = None
    before: Values | None = None
    after: Values | None = None
    if part in b"KO" and kind != "insert":
        old, at = _values(payload, at)
        key, before = (old, None) if part == ord("K") else (None, old)
        if kind == "update":
            part, at = payload[at], at + 1
    elif kind == "delete":
        raise Malformed("a delete does not say which row")
    if kind != "delete":
        if part != ord("N"):
            raise Malformed(f"part {part} of an {kind} is of no known kind")
        after, at = _values(payload, at)
    if at != len(payload):
        raise Malformed(f"{len(payload) - at} bytes follow an {kind}")
    return Change(kind, oid, key, before, after)


def _values(payload: bytes, at: int) -> tuple[Values, int]:
    (count,) = _COUNT.unpack_from(payload, at)
    at += 2
    values: Values = []
    size_of = _LENGTH.unpack_from
    for _ in range(count):
        kind = payload[at]
        if kind == 116:  # t: text
            begin = at + 5
            at = begin + size_of(payload, at + 1)[0]
            if at > len(payload):
                raise Malformed("a value is longer than its message")
            values.append(payload[begin:at].decode())
        elif kind == 110:  # n: NULL
            values.append(None)
            at += 1
        elif kind == 117:  # u: not sent
            values.append(UNCHANGED)
            at += 1
        else:
            raise Malformed(f"a value of kind {kind} was not asked for")
    return values, at
