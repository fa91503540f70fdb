"""Transactions as a server sends them: the bytes of `pgoutput`, written from its documentation."""

from __future__ import annotations

import struct
from collections.abc import Sequence

UNSENT = object()
"""A large value that an update did not change."""

Row = Sequence[object]


def name(text: str) -> bytes:
    return text.encode() + b"\0"


def values(row: Row) -> bytes:
    parts = [struct.pack(">H", len(row))]
    for value in row:
        if value is None or value is UNSENT:
            parts.append(b"n" if value is None else b"u")
        else:
            text = str(value).encode()
            parts.append(b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


def begin(commit_lsn: int, at_us: int, transaction: int) -> bytes:
    return b"B" + struct.pack(">QqI", commit_lsn, at_us, transaction)


def commit(commit_lsn: int, end_lsn: int, at_us: int = 0) -> bytes:
    return b"C\0" + struct.pack(">QQq", commit_lsn, end_lsn, at_us)


def relation(oid: int, schema: str, table: str, columns: Sequence[tuple[str, int, bool]]) -> bytes:
    body = b"R" + struct.pack(">I", oid) + name(schema) + name(table) + b"d" + struct.pack(">H", len(columns))
    return body + b"".join(bytes([key]) + name(column) + struct.pack(">Ii", kind, -1) for column, kind, key in columns)


def insert(oid: int, new: Row) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + values(new)


def update(oid: int, new: Row, old: Row | None = None, old_kind: bytes = b"O") -> bytes:
    before = b"" if old is None else old_kind + values(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + values(new)


def delete(oid: int, old: Row, old_kind: bytes = b"O") -> bytes:
    return b"D" + struct.pack(">I", oid) + old_kind + values(old)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids)


def data(lsn: int, payload: bytes) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + payload


def keepalive(lsn: int, wants_answer: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", lsn, 0, wants_answer)
