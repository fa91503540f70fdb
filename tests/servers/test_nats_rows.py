"""NatsSink beyond the kit: bundles above one batch, streams that exist, subjects, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.servers.nats import Nats, nats_server
from causal.errors import Fenced, PipelineError, RowRefused, Superseded, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from operators.sinks import NatsSink
from operators.sinks.conformance import Subject, after, bundle_at, expect_held
from operators.sinks.nats import nats_session
from operators.sinks.nats.nats_session import Session
from tests.servers.test_nats_conformance import NUMBERS, fresh

ROWS = 20
"""The rows of a bundle for which three batches are needed."""


class Cut(Exception):
    """The death of a writer."""


@pytest.fixture
def large(shared_nats: Nats, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """A sink whose server takes 12 messages as one batch."""
    monkeypatch.setattr(nats_session, "BATCH_MAX", 12)
    return fresh(shared_nats)


def dying(store: SinkStore, monkeypatch: pytest.MonkeyPatch, after_batches: int) -> None:
    """Allow a store that many batches, and then none."""
    append, left = Session.append, after_batches

    def limited(self: Session, *arguments: Any) -> bool:
        nonlocal left
        if self is store._connection:  # type: ignore[attr-defined]
            left -= 1
            if left < 0:
                raise Cut
        return append(self, *arguments)

    monkeypatch.setattr(Session, "append", limited)


@pytest.mark.parametrize("batches", [0, 1, 2])
@pytest.mark.parametrize("count", [ROWS, 7])
def test_rows_of_a_bundle_whose_writer_died_between_batches_come_once(
    large: Subject, monkeypatch: pytest.MonkeyPatch, batches: int, count: int
) -> None:
    store, state = large.opened()
    first = bundle_at(large, state, 3)
    store.write(first)
    with monkeypatch.context() as context:
        dying(store, context, batches)
        with pytest.raises(Cut):
            store.write(bundle_at(large, after(state, first), ROWS))
    written = len(large.read("out/0"))
    assert (written == 3) == (batches == 0) and written < 3 + ROWS
    store, state = large.opened(2)
    assert state.next == 3, "the bundle does not count before it is complete"
    store.truncate(0)
    while state.next < 30:
        bundle = bundle_at(large, state, count, 2)
        store.write(bundle)
        store.write(bundle)
        state = after(state, bundle)
    large.expect_rows(state.next, "rows that were there are left out")
    expect_held(large, store.last_bundle(), "determinants and position agree")
    store.close()


def test_a_checkpoint_keeps_how_far_the_rows_of_a_bundle_are(large: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    store, state = large.opened()
    bundle = replace(bundle_at(large, state, ROWS), epoch=1, logs=())
    with monkeypatch.context() as context:
        dying(store, context, 2)
        with pytest.raises(Cut):
            store.write(bundle)
    store.close()
    store, _ = large.opened(2)
    store.truncate(1)
    store.close()
    store, _ = large.opened(3)
    store.write(replace(bundle, incarnation=3))
    large.expect_rows(ROWS, "rows that were there are left out after a checkpoint, too")
    store.close()


def test_a_writer_that_was_replaced_between_batches_writes_nothing_more(
    large: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, state = large.opened()
    bundle = bundle_at(large, state, ROWS)
    append = Session.append
    successors: list[tuple[SinkStore, StoreState]] = []

    def replaced(self: Session, *arguments: Any) -> bool:
        done = append(self, *arguments)
        if self is store._connection and not successors:  # type: ignore[attr-defined]
            successors.append(large.opened(2))
        return done

    monkeypatch.setattr(Session, "append", replaced)
    with pytest.raises(Fenced):
        store.write(bundle)
    monkeypatch.undo()
    monkeypatch.setattr(nats_session, "BATCH_MAX", 12)
    (young, state), written = successors[0], len(large.read("out/0"))
    assert 0 < written < ROWS and state.next == 0
    young.write(bundle_at(large, state, ROWS, 2))
    large.expect_rows(ROWS, "a successor writes the rest")
    young.close()
    store.close()


def test_a_bundle_above_the_limit_of_a_server_is_written(shared_nats: Nats) -> None:
    sink = NatsSink(shared_nats.address, stream := f"rows-{next(NUMBERS)}")
    store = sink.open_store("out/0", None)  # type: ignore[arg-type]
    state = store.open("out/0", "run-1", 1)
    rows = b"".join(sink.encode([{"n": n}]) for n in range(2500))
    bundle = bundle_at(Subject(sink, lambda task: []), state, 1)
    store.write(replace(bundle, count=2500, rows=rows))
    positions = [int(row.headers["position"]) for row in shared_nats.rows(stream) if "position" in row.headers]
    assert positions == list(range(2500))
    store.close()


def test_rows_go_to_their_subjects_with_their_headers(shared_nats: Nats) -> None:
    shared_nats.create("places", "places.>", "causal.places.>", "causal.places", allow_atomic=True, allow_direct=True)
    sink = NatsSink(
        shared_nats.address, "places", subject=lambda r: f"places.{r['at']}", encode=lambda r: r["text"],
        headers=lambda r: {"origin": f"{r['at']} ü"},
    )  # fmt: skip
    sink.check()
    store = sink.open_store("out/0", None)  # type: ignore[arg-type]
    store.open("out/0", "run-1", 1)
    records = [{"at": "rome", "text": "a"}, {"at": "causal.places", "text": ""}, {"at": "x", "text": "b"}]
    bundle = Bundle(0, 3, sink.encode(records), 0, 0, 1, ())
    store.write(bundle)
    rows = [row for row in shared_nats.rows("places") if "task" in row.headers]
    assert [(row.subject, row.value) for row in rows] == [
        ("places.rome", b"a"), ("places.causal.places", b""), ("places.x", b"b"),
    ]  # fmt: skip
    assert rows[0].headers["origin"] == "rome ü" and rows[2].headers["position"] == "2"
    elsewhere = NatsSink(shared_nats.address, "places", subject=lambda r: r["at"])
    rows_elsewhere = elsewhere.encode([{"at": "places.y"}, {"at": "other"}, {"at": "causal.places.out-0"}])
    with pytest.raises(RowRefused, match=r"position 4 .* no subject other; add it .* \(and 1 more row") as refused:
        store.write(replace(bundle, first=3, rows=rows_elsewhere))
    assert [position for position, _ in refused.value.rows] == [4, 5]
    store.close()


GOOD = {"allow_atomic": True, "allow_direct": True}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"allow_direct": True}, "takes no atomic batches: set allow_atomic"),
        ({"allow_atomic": True}, "has no direct reads: set allow_direct"),
        ({**GOOD, "storage": "memory"}, "is in memory, .* use storage=file"),
        ({**GOOD, "retention": "workqueue"}, "has retention=workqueue: use retention=limits"),
        ({**GOOD, "max_msgs_per_subject": 1}, "set max_msgs_per_subject=-1"),
        ({**GOOD, "max_msgs": 100}, "may drop a sink's account"),
        ({**GOOD, "max_bytes": 100_000}, "may drop a sink's account"),
        ({**GOOD, "max_age": 60 * 10**9}, "has max_age: set allow_msg_ttl, too"),
        ({**GOOD, "max_msg_size": 1000}, "has max_msg_size below 4,096: raise it"),
        ({**GOOD, "subjects": ["a.x"]}, r"lacks subjects: add S\.rows, causal\.S\.>, causal\.S; change it"),
    ],
)
def test_a_stream_that_cannot_keep_an_account_is_refused(shared_nats: Nats, config: dict[str, Any], words: str) -> None:
    stream = f"wrong-{next(NUMBERS)}"
    subjects = config.pop("subjects", None) or [f"{stream}.>", f"causal.{stream}.>", f"causal.{stream}"]
    shared_nats.create(stream, *(each.replace("a.", f"{stream}-a.") for each in subjects), **config)
    with pytest.raises(PipelineError, match=words.replace("S", stream)) as refused:
        NatsSink(shared_nats.address, stream).check()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("bound", [{"max_age": 2 * 10**9, "allow_msg_ttl": True}, {"max_msgs": 50, "discard": "new"}])
def test_a_stream_that_forgets_rows_keeps_the_account(shared_nats: Nats, bound: dict[str, Any]) -> None:
    stream = f"short-{next(NUMBERS)}"
    subjects = [f"{stream}.>", f"causal.{stream}.>", f"causal.{stream}"]
    shared_nats.create(stream, *subjects, **GOOD, **bound)
    subject = Subject(NatsSink(shared_nats.address, stream), list)
    store, state = subject.opened()
    written = after(state, bundle := bundle_at(subject, state, 20))
    store.write(bundle)
    if "max_age" in bound:
        [own] = [row for row in shared_nats.rows(stream) if row.subject.endswith("out-0")][1:]
        assert own.headers["Nats-TTL"] == "never"
    else:
        with pytest.raises(Unavailable, match="maximum messages exceeded.*; the stream is full"):
            store.write(bundle_at(subject, written, 20 + 1))
            store.write(bundle_at(subject, after(written, bundle_at(subject, written, 20)), 20))
    store.close()
    store, state = subject.opened(2)
    assert state.next >= 20
    store.close()


def test_wrong_users_and_missing_permissions_are_one_line_without_secrets() -> None:
    pytest.importorskip("nats", reason="nats is not installed (extra nats)")
    users = "authorization { users: [ {user: app, password: right}, {user: low, password: low, permissions: {publish: "
    users += '["$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*"]}} ] }'
    with nats_server(users, user="app", password="right") as server:
        wrong = {"user": "app", "password": "hunter2"}
        with pytest.raises(PipelineError, match="NATS at 127.0.0.1:[0-9]+: Authorization Violation; check user") as no:
            NatsSink(server.address, "t", options=wrong).check()
        assert "hunter2" not in str(no.value)
        NatsSink(server.address, "t", options={"user": "app", "password": "right"}).check()
        low = Subject(NatsSink(server.address, "t", options={"user": "low", "password": "low"}), list)
        with pytest.raises(PipelineError, match=r"(?i)STREAM.MSG.GET.t.*; grant the user this permission"):
            low.opened()


def test_a_server_without_jetstream_and_one_that_is_missing_are_waited_for() -> None:
    pytest.importorskip("nats", reason="nats is not installed (extra nats)")
    with pytest.raises(Unavailable, match="NATS at 127.0.0.1:1 cannot be reached: .*; start it, or check the network"):
        Subject(NatsSink("127.0.0.1:1", "t"), list).opened()
    NatsSink("127.0.0.1:1", "t").check()


def test_a_newer_run_ends_the_writers_of_all_tasks(shared_nats: Nats) -> None:
    subject = fresh(shared_nats, existing="append")
    old, state = subject.opened(task="out/1")
    state = after(state, bundle := bundle_at(subject, state, 5, task="out/1"))
    old.write(bundle)
    young, _ = subject.opened(run="run-2")
    with pytest.raises(Superseded):
        old.write(bundle_at(subject, state, 5, task="out/1"))
    subject.expect_rows(5, "an older run writes nothing more", "out/1")
    young.close()
    old.close()


def test_an_older_run_that_claims_while_a_newer_one_begins_is_refused(
    shared_nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = fresh(shared_nats)
    append = Session.append
    successors: list[SinkStore] = []

    def late(self: Session, *arguments: Any) -> bool:
        if not successors and self.account_subject.endswith("out-1"):
            monkeypatch.undo()
            successors.append(subject.opened(run="run-2")[0])
        return append(self, *arguments)

    monkeypatch.setattr(Session, "append", late)
    with pytest.raises(Superseded):
        subject.opened(run="run-1", task="out/1")
    assert successors
    successors[0].close()
