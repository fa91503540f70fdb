"""The behaviour of `RedisSink` that users see, beyond the promises that every sink makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.redis import Redis, redis_server
from causal.errors import CorruptData, DeterminantsLost, PipelineError, Unavailable
from causal.ports import Bundle, StoreState
from operators.sinks import RedisSink, conformance
from operators.sinks.conformance import withdrawal
from operators.sinks.contract import SinkStore, WithdrawingStore

NUMBERS = count()
HERE = Path()


def fresh(server: Redis, **options: Any) -> RedisSink:
    return RedisSink(server.url, stream=f"shop_{next(NUMBERS)}", **options)


def bundle(sink: RedisSink, first: int, *records: Any) -> Bundle:
    """Those records, from position `first` on."""
    return Bundle(first, len(records), sink.encode(records), first + len(records), 0, 1, ())


@contextmanager
def opened(sink: RedisSink, run: str = "run-1", incarnation: int = 1) -> Iterator[SinkStore]:
    store = sink.open_store("out/0", HERE)
    store.open("out/0", run, incarnation)
    try:
        yield store
    finally:
        store.close()


def entries(server: Redis, sink: RedisSink) -> list[tuple[str, Any]]:
    with server.client() as client:
        return [(key, json.loads(fields["record"])) for key, fields in client.xrange(sink.key_of("out/0"))]


def test_the_position_of_a_row_is_its_id(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    sink.check()
    with opened(sink) as store:
        store.write(bundle(sink, 0, {"a": "ü\n"}, [1, None]))
        store.write(bundle(sink, 2, "text"))
    assert entries(shared_redis, sink) == [("0-1", {"a": "ü\n"}), ("1-1", [1, None]), ("2-1", "text")]


def test_a_row_that_is_put_aside_leaves_its_id_free(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    with opened(sink) as store:
        store.write(replace(bundle(sink, 0, 10, 11, 12), refused=((1, "not this one"),)))
        assert store.last_bundle().refused == 1
    assert entries(shared_redis, sink) == [("0-1", 10), ("2-1", 12)]
    with shared_redis.client() as client:
        assert client.hgetall(f"{sink.key_of('out/0')}:refused") == {"1": "not this one"}


def test_a_bounded_stream_keeps_the_last_rows(shared_redis: Redis) -> None:
    sink = fresh(shared_redis, rows_max=1000)
    with opened(sink) as store:
        for first in range(0, 5000, 500):
            store.write(bundle(sink, first, *range(first, first + 500)))
    kept = entries(shared_redis, sink)
    assert 1000 <= len(kept) <= 1200
    assert kept == [(f"{n}-1", n) for n in range(5000 - len(kept), 5000)]


def test_readers_of_a_group_go_back_with_the_rows(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    subject = conformance.Subject(sink, lambda task: [])
    key = sink.key_of("out/0")
    store, state = subject.opened()
    withdrawal.fill_marked(subject, store, state, 14)
    state = store.last_bundle()
    with shared_redis.client() as client:
        client.xgroup_create(key, "ahead", id="0")
        client.xgroup_create(key, "behind", id="0")
        client.xreadgroup("ahead", "me", {key: ">"})
        client.xreadgroup("behind", "me", {key: ">"}, count=3)
        assert isinstance(store, WithdrawingStore)
        withdrawn = store.withdraw(next(mark for mark in state.marks if mark.next == 7))
        withdrawal.fill_marked(subject, store, withdrawn, 10)
        [(_, again)] = client.xreadgroup("ahead", "me", {key: ">"})
        [(_, rest)] = client.xreadgroup("behind", "me", {key: ">"})
    assert [entry for entry, _ in again] == ["7-1", "8-1", "9-1"]
    assert [entry for entry, _ in rest] == [f"{n}-1" for n in range(3, 10)]
    store.close()


def test_rows_of_another_run_are_replaced_where_the_sink_says_so(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1, 2, 3))
    with pytest.raises(PipelineError, match=f"stream {sink.stream} holds rows of another run"):
        sink.open_store("out/0", HERE).open("out/0", "run-2", 1)
    again = RedisSink(shared_redis.url, stream=sink.stream, existing="replace")
    with opened(again, run="run-2") as store:
        store.write(bundle(again, 0, 9))
    assert entries(shared_redis, again) == [("0-1", 9)]


def test_a_key_of_another_program_is_left_alone(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    with shared_redis.client() as client:
        client.set(sink.key_of("out/0"), "mine")
        with pytest.raises(PipelineError, match="exists but was not created by a sink"):
            sink.open_store("out/0", HERE).open("out/0", "run-1", 1)
        assert client.get(sink.key_of("out/0")) == "mine"


def test_another_program_that_adds_to_the_stream_is_noticed(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1))
        with shared_redis.client() as client:
            client.xadd(sink.key_of("out/0"), {"record": "2"})
        with pytest.raises(PipelineError, match="another program added entries to the stream"):
            store.write(bundle(sink, 1, 2))
        assert store.last_bundle().next == 1


NOT_DURABLE: dict[str, tuple[dict[str, str], str]] = {
    "no file": ({"appendonly": "no"}, "process"),
    "every second": ({"appendfsync": "everysec"}, "process"),
    "not synced": ({"appendfsync": "no"}, "os"),
    "thrown away": ({"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}, "process"),
}


@pytest.mark.parametrize("case", NOT_DURABLE)
def test_a_server_that_may_forget_is_refused_unless_permitted(case: str, shared_redis: Redis) -> None:
    settings, durability = NOT_DURABLE[case]
    with redis_server(**settings) as server:
        sink = fresh(server, durability=durability)
        for attempt in (sink.check, lambda: sink.open_store("out/0", HERE).open("out/0", "run-1", 1)):
            with pytest.raises(PipelineError, match='or use RedisSink.…, durability="server".'):
                attempt()
        with opened(fresh(server, durability="server")) as store:
            store.write(bundle(sink, 0, 1))


@pytest.mark.parametrize("appendfsync", ["always", "no"])
def test_what_was_acknowledged_survives_the_server(appendfsync: str, shared_redis: Redis) -> None:
    with redis_server(appendfsync=appendfsync) as server:
        sink = fresh(server)
        store = sink.open_store("out/0", HERE)
        state = store.open("out/0", "run-1", 1)
        for place in range(5):
            store.write(bundle(sink, 2 * place, place, place))
            with server.down():
                pass
            assert [row for _, row in entries(server, sink)] == [n // 2 for n in range(2 * place + 2)]
            state = _asked_at_last(store)
            assert state.next == 2 * place + 2
        store.close()


def _asked_at_last(store: SinkStore) -> StoreState:
    for _ in range(400):
        try:
            return store.last_bundle()
        except Unavailable:
            continue
    raise AssertionError("the store stays unavailable")


def test_what_was_asked_of_a_stopped_server_happens_once(own_redis: Redis) -> None:
    sink = fresh(own_redis, timeout_ms=1000)
    with opened(sink) as store:
        for place in range(5):
            with own_redis.away(), pytest.raises(Unavailable, match="does not answer"):
                store.write(bundle(sink, place, place))
            _asked_at_last(store)
            store.write(bundle(sink, place, place))
    assert entries(own_redis, sink) == [(f"{n}-1", n) for n in range(5)]


def test_a_server_without_memory_keeps_all_and_takes_nothing(own_redis: Redis) -> None:
    sink = fresh(own_redis)
    with opened(sink) as store, own_redis.client() as client:
        store.write(bundle(sink, 0, 0))
        client.config_set("maxmemory", "1kb")
        for _ in range(2):
            with pytest.raises(Unavailable, match="out of memory and does not evict data: raise maxmemory"):
                store.write(bundle(sink, 1, *range(1, 500)))
        assert entries(own_redis, sink) == [("0-1", 0)]
        store.truncate(1)
        client.config_set("maxmemory", "0")
        store.write(bundle(sink, 1, *range(1, 500)))
    assert entries(own_redis, sink) == [(f"{n}-1", n) for n in range(500)]


def test_a_replica_is_waited_for(own_redis: Redis) -> None:
    sink = fresh(own_redis)
    with opened(sink) as store, own_redis.client() as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(Unavailable, match="is a replica|has lost its primary"):
            store.write(bundle(sink, 0, 0))
        client.replicaof("NO", "ONE")
        store.write(bundle(sink, 0, 0))
    assert entries(own_redis, sink) == [("0-1", 0)]


def test_rows_that_were_acknowledged_and_are_gone_are_noticed(shared_redis: Redis) -> None:
    with redis_server(appendonly="no") as server:
        sink = fresh(server, durability="server")
        with opened(sink) as store:
            store.write(bundle(sink, 0, 1, 2, 3))
            with server.down():
                pass
            with pytest.raises(DeterminantsLost, match="up to 3 were acknowledged, but it has rows only up to 0"):
                _asked_at_last(store)
        again = sink.open_store("out/0", HERE)
        assert again.open("out/0", "run-1", 2).next == 0
        again.close()


def test_an_account_that_cannot_be_read_is_not_used(shared_redis: Redis) -> None:
    sink = fresh(shared_redis)
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1))
    with shared_redis.client() as client:
        client.hset(f"{sink.key_of('out/0')}:causal", "account", "\x07")
    with pytest.raises(CorruptData, match=f"{sink.key_of('out/0')}:causal"):
        sink.open_store("out/0", HERE).open("out/0", "run-1", 2)


def test_no_message_has_the_password(tmp_path: Path) -> None:
    sink = RedisSink(f"unix://app:secret@{tmp_path}/none.sock")
    sink.check()
    with pytest.raises(Unavailable, match="none.sock cannot be reached") as problem:
        sink.open_store("out/0", HERE).open("out/0", "run-1", 1)
    assert "secret" not in str(problem.value)


def test_a_server_with_a_password_wants_it(shared_redis: Redis) -> None:
    with redis_server() as server:
        with server.client() as client:
            client.config_set("requirepass", "secret")
        with pytest.raises(PipelineError, match="use a url with the (right user and )?password"):
            fresh(server).check()
        wrong = RedisSink(server.url.replace("unix://", "unix://:guess@"))
        with pytest.raises(PipelineError, match="use a url with the (right user and )?password"):
            wrong.check()
        RedisSink(server.url.replace("unix://", "unix://:secret@")).check()
