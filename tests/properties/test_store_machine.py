"""Sink stores against an account in memory that never dies: reopened at any point they hold and show the same.

The account itself is held to what was written: positions, digests, and logs that are what their owners logged.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from xxhash import xxh3_64_intdigest

from causal.errors import Fenced, InvariantViolation, PeerViolation
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore, StoreState, WithdrawingStore
from operators.sinks import JsonLinesSink
from operators.sinks.conformance import Subject
from operators.sinks.contract.account import Account
from operators.sinks.contract.key_text import key_text
from tests.members import examples
from tests.unit.sinks.test_conformance import keys_in_sqlite, sqlite, upserts

TASK, RUN = "out/0", "run-1"
OWNERS = (0, 3)
entries = st.fixed_dictionaries({owner: st.binary(max_size=4) for owner in OWNERS})


class Stores(RuleBasedStateMachine):
    """One sink task, whose writer dies and comes back; `make` says in which kind of store."""

    def subject(self, directory: Path) -> Subject:
        raise NotImplementedError

    @initialize(marked=st.booleans())
    def begin(self, marked: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.kind = self.subject(Path(self.directory.name))
        self.marked = marked
        self.account = Account(TASK, RUN, 1)
        self.records: list[object] = []
        self.logged: dict[tuple[int, int], bytes] = {}
        self.epoch = 0
        self.incarnation = 1
        self.last: Bundle | None = None
        self.abandoned: list[tuple[SinkStore, int, int]] = []
        self.store, state = self.kind.opened(1)
        assert state == StoreState(0, 0, ())

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            for store in (self.store, *(each for each, _, _ in self.abandoned)):
                store.close()
            self.directory.cleanup()

    def _bundle(self, texts: list[str], logged: dict[int, bytes], overlap: int) -> Bundle:
        rows, digest = b"", self.account.digest
        for text in texts:
            row = self.kind.encoded({"text": text})
            rows, digest = rows + row, xxh3_64_intdigest(row, digest)
        logs, depends = [], []
        for owner, entry in logged.items():
            before = self.logged.get((owner, self.epoch), b"")
            start = max(0, len(before) - overlap)
            if entry:
                logs.append(LogDelta(owner, self.epoch, start, before[start:] + entry))
                depends.append((owner, self.epoch, len(before) + len(entry)))
        dependencies = tuple(depends) if self.marked else None
        return Bundle(
            self.account.next, len(texts), rows, digest, self.epoch, self.incarnation, tuple(logs), False, dependencies
        )

    @rule(texts=st.lists(st.text(max_size=4), max_size=3), logged=entries, overlap=st.integers(0, 3))
    def write(self, texts: list[str], logged: dict[int, bytes], overlap: int) -> None:
        bundle = self._bundle(texts, logged, overlap)
        self.store.write(bundle)
        fresh = self.account.take(bundle)
        if fresh is None:  # an empty bundle like the one before it
            return
        for delta in fresh:
            before = self.logged.get((delta.task, delta.epoch), b"")
            assert delta.offset == len(before)
            self.logged[delta.task, delta.epoch] = before + delta.bytes
        self.records += [{"text": text} for text in texts]
        self.last = bundle

    @precondition(lambda self: self.last is not None)
    @rule()
    def the_acknowledgement_was_lost(self) -> None:
        assert self.last is not None
        self.store.write(self.last)
        assert self.account.take(self.last) is None

    @rule(skip=st.integers(1, 3))
    def a_bundle_that_leaves_a_gap_is_our_own_bug(self, skip: int) -> None:
        bundle = Bundle(self.account.next + skip, 0, b"", 0, self.epoch, self.incarnation, ())
        with pytest.raises(InvariantViolation, match="begins where"):
            self.store.write(bundle)

    @rule(data=st.data())
    def other_determinants_are_refused_and_nothing_is_taken(self, data: st.DataObject) -> None:
        known = sorted((o, e) for (o, e), log in self.logged.items() if log and e >= self.account.kept_from)
        if not known:
            return
        owner, epoch = data.draw(st.sampled_from(known))
        whole = bytearray(self.logged[owner, epoch])
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 0xFF
        bundle = self._bundle(["never"], {}, 0)
        bad = (LogDelta(owner, epoch, 0, bytes(whole)), LogDelta(owner, epoch, len(whole) + 1, b"gap"))
        for delta in bad:
            with pytest.raises(PeerViolation):
                self.store.write(
                    Bundle(bundle.first, 1, bundle.rows, bundle.digest, self.epoch, self.incarnation, (delta,))
                )

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 2))
    def truncate(self, back: int) -> None:
        epoch = max(0, self.epoch - back)
        self.store.truncate(epoch)
        self.account.truncate(epoch)
        self.logged = {(o, e): log for (o, e), log in self.logged.items() if e >= self.account.kept_from}

    @precondition(lambda self: self.account.marks)
    @rule(place=st.integers(0, 5))
    def withdraw(self, place: int) -> None:
        """Rows after a mark are withdrawn; what was logged beyond what the others depend on did not happen."""
        mark = self.account.marks[-1 - place % len(self.account.marks)]
        state = cast(WithdrawingStore, self.store).withdraw(mark)
        self.account.withdraw(mark)
        assert state == self.account.store_state()
        assert self.account.next == mark.next
        del self.records[mark.next :]
        self.logged = {(delta.task, delta.epoch): delta.bytes for delta in state.logs}
        self.epoch = max(mark.epoch, self.account.kept_from)
        self.last = None

    @rule(rises=st.booleans(), closed=st.booleans())
    def reopen(self, rises: bool, closed: bool) -> None:
        """A new process, after the old one has closed, or died without."""
        if closed:
            self.store.close()
        else:
            self.abandoned.append((self.store, self.incarnation, self.account.next))
            rises = True
        self.incarnation += rises
        self.last = None
        self.store, state = self.kind.opened(self.incarnation)
        assert state == self.account.store_state()

    @precondition(lambda self: self.abandoned)
    @rule()
    def a_zombie_changes_nothing(self) -> None:
        """A zombie continues where it was when its successor came."""
        store, incarnation, following = self.abandoned.pop(0)
        row = self.kind.encoded({"text": "of a zombie"})
        with pytest.raises(Fenced):
            store.write(Bundle(following, 1, row, 0, self.epoch, incarnation, ()))
        with pytest.raises(Fenced):
            store.truncate(self.account.kept_from + 1)
        store.close()

    @invariant()
    def what_is_visible_is_what_was_written(self) -> None:
        if hasattr(self, "kind"):
            assert self.kind.read(TASK) == self.kind.seen(self.records)

    @invariant()
    def the_account_holds_what_was_written(self) -> None:
        if not hasattr(self, "account"):
            return
        state = self.account.store_state()
        assert state.next == len(self.records)
        assert {(d.task, d.epoch): d.bytes for d in state.logs} == {key: log for key, log in self.logged.items() if log}
        assert all(delta.offset == 0 for delta in state.logs)
        ends = [mark.next for mark in state.marks]
        assert ends == sorted(ends) and (not ends or ends[-1] == state.next)
        assert state.marks == () or self.marked


class Sqlite(Stores):
    """Rows in a table."""

    def subject(self, directory: Path) -> Subject:
        return sqlite(directory)


class Upserts(Stores):
    """Rows by key: the first character, which a text of four characters deletes."""

    def subject(self, directory: Path) -> Subject:
        def revision(record: Any) -> tuple[Any, ...]:
            text = record["text"]
            return text[:1], None, None if len(text) == 4 else record

        def seen(records: Sequence[Any]) -> dict[str, Any]:
            rows = {key_text(revision(record)[0]): revision(record)[2] for record in records}
            return {key: row for key, row in rows.items() if row is not None}

        kind = upserts(directory)
        path = kind.sink.path  # type: ignore[attr-defined]
        return replace(kind, row=revision, seen=seen, read=lambda _: keys_in_sqlite(path, ""))


class Lines(Stores):
    """Rows in a file of lines."""

    def subject(self, directory: Path) -> Subject:
        sink = JsonLinesSink(directory / "out")

        def rows(task: str) -> list[object]:
            path = sink.path_of(task)  # lines end with a newline; text may hold what `splitlines` takes for one
            return [json.loads(line) for line in (path.read_bytes() if path.exists() else b"").split(b"\n")[:-1]]

        return Subject(sink, rows)


bounded = examples(divided_by=3, stateful_step_count=40)
TestSqlite = Sqlite.TestCase
TestSqlite.settings = bounded
TestUpserts = Upserts.TestCase
TestUpserts.settings = bounded
TestLines = Lines.TestCase
TestLines.settings = bounded
