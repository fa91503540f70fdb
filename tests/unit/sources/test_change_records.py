"""A stream of transactions, cut and sent again at any place: each change becomes a record once, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, PipelineError
from causal.records.values import decode
from operators.sources.postgres.change_records import Changes, Note, Position, note_of
from operators.sources.postgres.pgoutput import Data, Malformed
from tests.unit.sources import wal_messages as wal

T = wal.relation(1, "public", "t", [("k", 23, True), ("v", 25, False), ("doc", 25, False)])
U = wal.relation(2, "public", "u", [("k", 23, True)])
START = 100


@dataclass(frozen=True)
class Sent:
    """A transaction: the place of its commit, and its changes."""

    commit_lsn: int
    changes: int

    @property
    def end_lsn(self) -> int:
        return self.commit_lsn + 8

    def messages(self) -> list[bytes]:
        rows = [wal.insert(1 + number % 2, [number, "x", None][: 3 - number % 2 * 2]) for number in range(self.changes)]
        return [wal.begin(self.commit_lsn, 0, self.commit_lsn), T, U, *rows, wal.commit(self.commit_lsn, self.end_lsn)]


def stream_of(sizes: list[int]) -> list[Sent]:
    return [Sent(START + 20 * number, size) for number, size in enumerate(sizes)]


def records_of(changes: Changes) -> list[dict[str, Any]]:
    return [decode(entry) for entry in changes.take()]


@given(st.lists(st.integers(0, 6), max_size=6), st.data())
def test_any_batches_and_failures_give_each_change_once(sizes: list[int], data: st.DataObject) -> None:
    """Records are published after any message, and the connection ends after any; the server then sends again."""
    stream = stream_of(sizes)
    stored: list[dict[str, Any]] = []
    position = Position(START)
    for _ in range(data.draw(st.integers(1, 5))):
        changes = Changes((1).__eq__, position, 1 << 20)
        messages = [m for sent in stream if sent.end_lsn > position.lsn for m in sent.messages()]
        for message in messages[: data.draw(st.integers(0, len(messages)))]:
            changes.add(Data(0, message))
            if data.draw(st.booleans()):
                stored += records_of(changes)
                position = changes.position
    changes = Changes((1).__eq__, position, 1 << 20)
    for sent in stream:  # the server may also send what is confirmed already
        for message in sent.messages():
            changes.add(Data(0, message))
    stored += records_of(changes)
    expected = [(sent.commit_lsn, number) for sent in stream for number in range(0, sent.changes, 2)]
    assert [(record["lsn"], record["number"]) for record in stored] == expected
    assert all(record["after"] == {"k": record["number"], "v": "x", "doc": None} for record in stored)
    assert changes.position.lsn == (stream[-1].end_lsn if stream else START)


def one(*messages: bytes) -> dict[str, Any]:
    changes = Changes(lambda oid: True, Position(START), 1 << 20)
    for message in (wal.begin(START, 500_000, 7), T, *messages):
        changes.add(Data(0, message))
    [record] = records_of(changes)
    return record


def test_records_say_what_the_server_sends() -> None:
    assert one(wal.insert(1, [1, "a", None])) == {
        "operation": "insert", "table": "public.t", "before": None, "after": {"k": 1, "v": "a", "doc": None},
        "transaction": 7, "number": 0, "lsn": START, "committed_at": 946_684_800.5,
    }  # fmt: skip
    changed = one(wal.update(1, [1, "b", wal.UNSENT]))
    assert (changed["before"], changed["after"], changed["unchanged"]) == (None, {"k": 1, "v": "b"}, ["doc"])
    moved = one(wal.update(1, [2, "b", "d"], [1, None, None], b"K"))
    assert moved["before"] == {"k": 1} and moved["after"] == {"k": 2, "v": "b", "doc": "d"} and "unchanged" not in moved
    whole = one(wal.update(1, [1, "b", wal.UNSENT], [1, "a", "large"], b"O"))
    assert whole["before"] == {"k": 1, "v": "a", "doc": "large"} and "unchanged" not in whole
    assert whole["after"] == {"k": 1, "v": "b", "doc": "large"}
    assert one(wal.delete(1, [1, None, None], b"K"))["before"] == {"k": 1}
    assert one(wal.delete(1, [1, "a", None], b"O"))["before"] == {"k": 1, "v": "a", "doc": None}
    emptied = one(wal.truncate(1))
    assert (emptied["operation"], emptied["before"], emptied["after"]) == ("truncate", None, None)
    wider = wal.relation(1, "public", "t", [("k", 23, True), ("n", 1700, False)])
    assert set(one(wider, wal.insert(1, [1, "2.50"]))["after"]) == {"k", "n"}


def test_a_large_record_is_a_bad_row() -> None:
    changes = Changes(lambda oid: True, Position(START), 1000)
    for message in (wal.begin(START, 0, 7), T, wal.insert(1, [1, "x" * 1000, None])):
        changes.add(Data(0, message))
    [(where, why, raw)] = [decode(entry) for entry in changes.take()]
    assert where == "public.t, insert 0 of transaction 7" and "more than row_bytes_max (1,000)" in why
    assert len(raw) < 300 and changes.position == Position(START, START, 1)


@pytest.mark.parametrize(
    "messages",
    [
        [wal.insert(1, [1, "a", None])],
        [wal.begin(START, 0, 7), wal.begin(START, 0, 7)],
        [wal.begin(START, 0, 7), wal.insert(9, [1])],
        [wal.begin(START, 0, 7), T, wal.insert(1, [1])],
        [wal.begin(START, 0, 7), wal.commit(START + 1, START + 8)],
        [wal.commit(START, START + 8)],
    ],
)
def test_what_is_out_of_order_is_refused(messages: list[bytes]) -> None:
    changes = Changes(lambda oid: True, Position(START), 1 << 20)
    with pytest.raises(Malformed):
        for message in messages:
            changes.add(Data(0, message))


def test_the_rest_of_a_transaction_that_does_not_come_is_noticed() -> None:
    for messages in ([wal.begin(START + 20, 0, 8)], [wal.begin(START, 0, 7), T, wal.commit(START, START + 8)]):
        changes = Changes(lambda oid: True, Position(START, START, 2), 1 << 20)
        with pytest.raises(PipelineError, match="begin again with a new --state-dir"):
            for message in messages:
                changes.add(Data(0, message))


def test_signs_of_life_count_only_between_transactions() -> None:
    changes = Changes(lambda oid: True, Position(START), 1 << 20)
    changes.reached(START + 5)
    assert changes.position == Position(START + 5)
    changes.add(Data(0, wal.begin(START + 9, 0, 7)))
    changes.reached(START + 50)
    assert changes.position == Position(START + 5)
    parted = Changes(lambda oid: True, Position(START, START, 1), 1 << 20)
    parted.reached(START + 50)
    assert parted.position == Position(START, START, 1)


def test_notes_come_back_or_are_refused() -> None:
    note = Note("7", "causal_a", Position(1, 2, 3))
    assert note_of(note.text()) == note and note_of("") is None
    for text in ("{}", "[1]", "nonsense", '["a", "b", "c", 1, 2]'):
        with pytest.raises(CorruptData):
            note_of(text)
