"""Messages of logical replication: parsed as they were written, and whatever the bytes, a message or `Malformed`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.sources.postgres.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Change,
    Column,
    Commit,
    Data,
    Keepalive,
    Malformed,
    Relation,
    Truncate,
    confirmation,
    parsed,
    received,
)
from tests.unit.sources import wal_messages as wal

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
rows = st.lists(texts | st.none() | st.just(wal.UNSENT), max_size=5)
oids = st.integers(0, 2**32 - 1)
places = st.integers(0, 2**64 - 1)
columns = st.lists(st.tuples(names, oids, st.booleans()), max_size=5)

MESSAGES = st.one_of(
    st.builds(wal.begin, places, st.integers(-(2**60), 2**60), oids),
    st.builds(wal.commit, places, places),
    st.builds(wal.relation, oids, names, names, columns),
    st.builds(wal.insert, oids, rows),
    st.builds(wal.update, oids, rows, rows, st.sampled_from([b"O", b"K"])),
    st.builds(wal.delete, oids, rows, st.sampled_from([b"O", b"K"])),
    st.builds(lambda some: wal.truncate(*some), st.lists(oids, max_size=4)),
)


def sent(row: wal.Row) -> Any:
    return [UNCHANGED if value is wal.UNSENT else value for value in row]


@given(oids, rows, rows | st.none(), st.booleans())
def test_changes_are_parsed_as_they_were_written(oid: int, new: wal.Row, old: wal.Row | None, whole: bool) -> None:
    assert parsed(wal.insert(oid, new)) == Change("insert", oid, None, None, sent(new))
    kind = b"O" if whole else b"K"
    key = sent(old) if old is not None and not whole else None
    before = sent(old) if old is not None and whole else None
    assert parsed(wal.update(oid, new, old, kind)) == Change("update", oid, key, before, sent(new))
    if old is not None:
        assert parsed(wal.delete(oid, old, kind)) == Change("delete", oid, key, before, None)


@given(oids, names, names, columns)
def test_tables_are_parsed_as_they_were_written(
    oid: int, schema: str, table: str, some: list[tuple[str, int, bool]]
) -> None:
    expected = Relation(oid, schema, table, tuple(Column(*column) for column in some))
    assert parsed(wal.relation(oid, schema, table, some)) == expected


def test_the_frame_of_transactions() -> None:
    assert parsed(wal.begin(7, 8, 9)) == Begin(7, 8, 9)
    assert parsed(wal.commit(7, 8)) == Commit(7, 8)
    assert parsed(wal.truncate(1, 2)) == Truncate((1, 2))
    assert parsed(b"Y" + b"anything") is parsed(b"O") is parsed(b"M\0") is None
    assert received(wal.data(5, b"payload")) == Data(5, b"payload")
    assert received(wal.keepalive(6, True)) == Keepalive(6, True)
    assert confirmation(3, EPOCH_US + 4, True) == b"r" + bytes([*[0] * 7, 3, *[0] * 7, 3, *[0] * 7, 3, *[0] * 7, 4, 1])


@given(MESSAGES, st.data())
def test_a_cut_message_is_refused(message: bytes, data: st.DataObject) -> None:
    parsed(message)
    cut = message[: data.draw(st.integers(0, len(message) - 1))]
    with pytest.raises(Malformed):
        parsed(cut)
    with pytest.raises(Malformed):
        parsed(message + b"x")


@given(st.binary(max_size=60) | MESSAGES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))
def test_damaged_bytes_are_a_message_or_malformed(content: bytes, damages: list[tuple[int, int]]) -> None:
    damaged = bytearray(content)
    for place, byte in damages:
        if place < len(damaged):
            damaged[place] = byte
    for parse in (parsed, received):
        try:
            parse(bytes(damaged))
        except Malformed:
            continue
