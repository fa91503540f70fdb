"""The behaviour of `KafkaSink` that users see, beyond the promises that every sink makes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker, Topics
from causal.errors import DeterminantsLost, Fenced, PipelineError, RowRefused, Superseded, Unavailable
from causal.ports import Bundle, PreparedStore
from operators.outputs import open_output
from operators.sinks import KafkaSink
from operators.sinks.conformance import Subject, bundle_at, fill, record_at
from operators.sinks.conformance.dying import begun, killed_writers
from operators.sinks.contract import SinkStore

NUMBERS = count()
HERE = Path()


def fresh(topics: Topics, partitions: int = 1, **options: Any) -> KafkaSink:
    topic = topics.create(f"shop-{next(NUMBERS)}", partitions)
    return KafkaSink(topics.servers, topic, **{"timeout_ms": 3000, **options})


def again(sink: KafkaSink, **options: Any) -> KafkaSink:
    return KafkaSink(sink.cluster.servers, sink.topic, **{"timeout_ms": 3000, **options})


def bundle(sink: KafkaSink, first: int, *records: Any, incarnation: int = 1) -> Bundle:
    """Return those records, from position `first` on."""
    return Bundle(first, len(records), sink.encode(records), first + len(records), 0, incarnation, ())


@contextmanager
def opened(sink: KafkaSink, run: str = "run-1", incarnation: int = 1, task: str = "out/0") -> Iterator[SinkStore]:
    store = sink.open_store(task, HERE)
    store.open(task, run, incarnation)
    try:
        yield store
    finally:
        store.close()


def values(topics: Topics, sink: KafkaSink, committed: bool = True) -> list[Any]:
    return [json.loads(row.value or b"null") for row in topics.rows(sink.topic, committed)]


def test_a_row_is_a_message_with_key_and_headers(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, 4, key=lambda r: r["k"], headers=lambda r: {"kind": "ü"})
    sink.check()
    with opened(sink) as store:
        store.write(bundle(sink, 0, *({"k": f"k{n % 5}", "n": n} for n in range(50))))
    rows = shared_kafka.rows(sink.topic)
    of_key: dict[bytes | None, set[int]] = {}
    for row in rows:
        of_key.setdefault(row.key, set()).add(row.partition)
        assert row.headers["task"] == b"out/0" and row.headers["kind"] == "ü".encode()
        assert json.loads(row.value or b"")["n"] == int(row.headers["position"])
    assert sorted(int(row.headers["position"]) for row in rows) == list(range(50))
    assert len(of_key) == 5 and all(len(partitions) == 1 for partitions in of_key.values())
    assert len(set().union(*of_key.values())) > 1


def test_rows_are_there_for_both_kinds_of_readers_when_write_returns(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka)
    with opened(sink) as store:
        for n in range(5):
            store.write(bundle(sink, n, n))
            assert values(shared_kafka, sink) == values(shared_kafka, sink, committed=False) == list(range(n + 1))


def test_rows_of_another_run_are_refused_replaced_or_kept(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, 2)
    assert sink.newest_run() is None
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1, 2, 3))
        with pytest.raises(PipelineError, match=f"topic {sink.topic} holds rows of another run"), opened(sink, "run-2"):
            pass
        store.write(bundle(sink, 3, 4))
        with opened(again(sink, existing="append"), "run-3") as young:
            young.write(bundle(sink, 0, 5))
            assert sorted(values(shared_kafka, sink)) == [1, 2, 3, 4, 5]
            with pytest.raises(Superseded, match="belongs to a newer run, run-3"):
                store.write(bundle(sink, 4, 6))
    assert sink.newest_run() == "run-3"
    with opened(again(sink, existing="replace", trim=False), "run-4") as newest:
        newest.write(bundle(sink, 0, 7))
        assert values(shared_kafka, sink) == [7]


def test_a_run_with_fewer_tasks_replaces_the_rows_of_all(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka)
    with opened(sink) as one, opened(sink, task="out/1") as two:
        one.write(bundle(sink, 0, 1))
        two.write(bundle(sink, 0, 2))
        with opened(again(sink, existing="replace"), "run-2") as young:
            assert values(shared_kafka, sink) == []
            with pytest.raises(Superseded):
                two.write(bundle(sink, 1, 3))
            with opened(again(sink, existing="replace"), "run-2", task="out/1") as other:
                young.write(bundle(sink, 0, 4))
                other.write(bundle(sink, 0, 5))
        assert values(shared_kafka, sink) == [4, 5]


def test_rows_are_read_back_by_task_and_position(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, 3, key=lambda n: n % 7)
    url = f"kafka://{shared_kafka.servers}/{sink.topic}"
    with pytest.raises(PipelineError, match="has no rows of a KafkaSink"):
        open_output(url).look()
    with opened(sink) as one, opened(sink, task="out/1") as two:
        for first in range(0, 60, 20):
            one.write(bundle(sink, first, *range(first, first + 20)))
        two.write(replace(bundle(sink, 0, 100, 101, 102), refused=((1, "a reason"),)))
        output = open_output(url)
        output.look()
        assert output.ends(uncovered=True) == {"out/0": 60, "out/1": 3} and output.run == "run-1"

        def read(task: str, start: int, stop: int) -> list[tuple[int, Any]]:
            pieces = output.rows(task, start, stop)
            return [(at, json.loads(text)) for positions, texts in pieces for at, text in zip(positions, texts)]

        assert read("out/0", 7, 55) == [(n, n) for n in range(7, 55)]
        assert read("out/1", 0, 3) == [(0, 100), (2, 102)]
        with opened(again(sink, existing="append"), "run-2") as young:
            young.write(bundle(sink, 0, 5))
            output.look()
            assert output.ends(uncovered=False) == {"out/0": 1} and read("out/0", 0, 1) == [(0, 5)]


def test_a_missing_topic_is_not_made(shared_kafka: Topics) -> None:
    sink = KafkaSink(shared_kafka.servers, "nothing-there", timeout_ms=3000)
    for attempt in (sink.check, lambda: sink.open_store("out/0", HERE).open("out/0", "run-1", 1)):
        with pytest.raises(PipelineError, match="there is no topic nothing-there; create it first"):
            attempt()


def test_a_message_that_is_too_large_is_refused_and_the_others_are_not(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, options={"message.max.bytes": 600_000})
    with opened(sink) as store:
        large = bundle(sink, 0, "a", "x" * 700_000, "b")
        with pytest.raises(RowRefused, match="position 1 .*larger than message.max.bytes; raise it in options"):
            store.write(large)
        assert values(shared_kafka, sink) == []
        store.write(replace(large, refused=((1, "too large"),)))
        assert store.last_bundle().refused == 1
    assert values(shared_kafka, sink) == ["a", "b"]


def test_a_prepared_store_disturbs_nobody_and_opens(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka)
    with opened(sink) as store:
        standby = sink.open_store("out/0", HERE)
        assert isinstance(standby, PreparedStore)
        standby.prepare()
        store.write(bundle(sink, 0, 1))
        assert standby.open("out/0", "run-1", 2).next == 1
        with pytest.raises(Fenced):
            store.write(bundle(sink, 1, 2))
        standby.write(bundle(sink, 1, 3, incarnation=2))
        standby.close()
    assert values(shared_kafka, sink) == [1, 3]
    unused = sink.open_store("out/0", HERE)
    assert isinstance(unused, PreparedStore)
    unused.prepare()
    unused.close()


def test_another_client_with_the_transactional_id_is_only_a_hint(shared_kafka: Topics) -> None:
    from confluent_kafka import Producer

    sink = fresh(shared_kafka)
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1))
        other = Producer({"bootstrap.servers": shared_kafka.servers, "transactional.id": f"{sink.topic}.causal.out-0"})
        other.init_transactions(5)
        store.write(bundle(sink, 1, 2))
    assert values(shared_kafka, sink) == [1, 2]


def test_rows_that_were_acknowledged_and_are_gone_are_noticed(own_kafka: Broker) -> None:
    sink = fresh(own_kafka.topics)
    with opened(sink) as store:
        store.write(bundle(sink, 0, 1, 2, 3))
        own_kafka.kill()  # noida-db loses the last seconds
        own_kafka.start()
        if own_kafka.topics.rows(sink.topic):
            pytest.skip("the broker has saved the rows just before it was killed")
        with pytest.raises((DeterminantsLost, PipelineError)):
            _asked_at_last(store)


def _asked_at_last(store: SinkStore) -> None:
    for _ in range(100):
        try:
            store.last_bundle()
            return
        except Unavailable:
            time.sleep(0.05)


def test_without_transactions_rows_come_again_and_none_is_lost(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, transactions=False, trim=False)
    subject = Subject(sink, lambda task: [])

    def writer(number: int) -> int:
        def write(begin: Callable[[], object]) -> None:
            store, state = subject.opened(2 * number - 1)
            begin()
            while True:
                state = fill(subject, store, state, state.next + 3, 2 * number - 1)

        return begun(write)

    end = 0
    for number in killed_writers(writer, 8, 1):
        store, state = subject.opened(2 * number)
        seen: dict[int, Any] = {}
        for row in shared_kafka.rows(sink.topic):
            position, value = int(row.headers["position"]), json.loads(row.value or b"")
            assert value == record_at("out/0", position), "a row that comes again is the same"
            seen[position] = value
        assert end <= state.next and set(range(state.next)) <= seen.keys(), "no row that is counted is lost"
        end = state.next
        store.close()
    assert end > 0


def test_without_transactions_a_zombie_writes_no_rows(shared_kafka: Topics) -> None:
    sink = fresh(shared_kafka, transactions=False)
    subject = Subject(sink, lambda task: [])
    old, state = subject.opened(1)
    young, _ = subject.opened(2)
    with pytest.raises(Fenced):
        old.write(bundle_at(subject, state, 3, 1))
    assert shared_kafka.rows(sink.topic) == []
    with pytest.raises(PipelineError, match="needs transactions"):
        again(sink, transactions=False, existing="replace")
    old.close()
    young.close()
