"""Routes: counted records leave as keys with counts, and each record goes to the task of its key, or to all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PeerViolation
from causal.records.batch import LISTED, RECORDS, Chunk, decode_rows, encode_records
from causal.records.rows import Counted, Rows
from causal.records.values import encode
from operators import Count, Global, Pipeline, Sum, Tumbling, at_end, every
from operators.records.cutting import CHUNK_BYTES_TARGET, pieces
from operators.records.delivery import unite
from operators.records.keys import Unroutable, canonical_key
from operators.stage.failures import NO_KEY
from operators.stage.routing import BroadcastRoute, CountedRoute, KeyedRoute, StraightRoute
from operators.testing import run
from tests.unit.operators.join_scene import time_of
from tests.unit.operators.scene import NoSink, planned, ran, source

keys = st.one_of(st.integers(-2, 4), st.sampled_from(["a", "b", 1.0, 2.5, True, None, (1, "x"), b"b"]))
lost_keys = st.sampled_from([float("nan"), [], {}])
batches = st.lists(st.lists(st.one_of(keys, keys, keys, lost_keys), max_size=12), max_size=4)


def first(record: Any) -> Any:
    return record[0]


def routed(route: KeyedRoute, batches: list[list[Any]]) -> tuple[dict[int, Any], list[Any]]:
    """Return what a route gives each task of records with these keys, and the records that have no route."""
    lost: list[Any] = []
    for batch in batches:
        rows = [(key, place) for place, key in enumerate(batch)]
        route.add(rows, lambda index, key, problem: lost.append((index, repr(key), str(problem))))
    drained = dict(route.drain())
    assert route.drain() == []
    return drained, lost


@given(batches, st.sampled_from([first, lambda record: record[0]]))
def test_each_task_is_given_the_counts_of_the_records_that_it_would_be_given(
    drawn: list[list[Any]], key_of: Callable[[Any], Any]
) -> None:
    plain, plain_lost = routed(KeyedRoute("w", [3, 5], key_of, 16), drawn)
    drained, lost = routed(CountedRoute("w", [3, 5], key_of, 16), drawn)
    assert lost == plain_lost
    expected = {to: Counter(map(canonical_key, map(first, rows))) for to, rows in plain.items()}
    counted = {to: dict(zip(each.keys, each.counts, strict=True)) for to, each in drained.items()}
    assert counted == expected
    assert all(encode(key) == encode(canonical_key(key)) for each in counted.values() for key in each)


def test_a_record_without_a_key_is_reported_and_the_others_count() -> None:
    lost: list[Any] = []
    route = CountedRoute("w", [0], lambda record: record["k"], 16)
    route.add([{"k": 1}, {}, {"k": 1}], lambda index, key, problem: lost.append((index, type(problem))))
    [(_, counted)] = route.drain()
    assert (counted.keys, counted.counts, lost) == ([1], [2], [(1, KeyError)])


@given(st.dictionaries(keys, st.integers(1, 1 << 70), min_size=1))
def test_counted_records_come_back(counts: dict[Any, int]) -> None:
    sent = Counted(list(counts), list(counts.values()))
    back = decode_rows(encode_records(sent))
    assert (type(back), back.keys, back.counts) == (Counted, sent.keys, sent.counts)


@pytest.mark.parametrize(
    "columns",
    [[], [["a"]], [["a"], [0]], [["a"], [True]], [["a"], [1.0]], [["a"], [1, 2]], [[], []], [["a"], [1], [1]]],
)
def test_what_is_not_keys_and_counts_is_refused(columns: Any) -> None:
    with pytest.raises(PeerViolation):
        decode_rows(b"\x03" + encode(columns))


def test_counted_records_are_joined_with_their_like_only() -> None:
    some, more = Counted(["a", "b"], [1, 2]), Counted(["b"], [3])
    chunks = [Chunk(LISTED, 2, some), Chunk(RECORDS, 1, encode_records(more))]
    records, _, _ = unite(chunks)
    assert (records.keys, records.counts) == (["a", "b", "b"], [1, 2, 3])
    with pytest.raises(OperatorFailed, match="now counts records, but did not before"):
        unite([*chunks, Chunk(RECORDS, 1, encode_records(["b"]))])


def test_many_keys_leave_in_several_chunks() -> None:
    counted = Counted([f"{number:0>1000}" for number in range(10_000)], list(range(1, 10_001)))
    parts = list(pieces(counted))
    assert len(parts) > 2 and all(len(encode_records(part)) <= CHUNK_BYTES_TARGET for part in parts)
    assert [key for part in parts for key in part.keys] == counted.keys


def words(parallelism: int = 2, **options: Any) -> Pipeline:
    pipeline = Pipeline("words")
    lines = pipeline.source("lines", source(2), parallelism=2)
    terms = lines.flat_map("words", str.split).key_by(lambda term: term)
    terms.window("counts", Global(), Count(), parallelism=parallelism, **options).sink("out", NoSink())
    return pipeline


LINES = ["to be or not to be", "that is the question", "be that as it may", "to to to", "or or"] * 4
EXPECTED = {(term, n, 0, n) for term, n in Counter(" ".join(LINES).split()).items()}


@pytest.mark.parametrize("batch", [1, 3, 50])
@pytest.mark.parametrize("crash", [{}, {"words/0": 7}, {"counts/1": [3, 9]}, {"words/1": 4, "counts/0": 8}], ids=str)
def test_words_are_counted_once_whatever_the_batches_and_crashes(batch: int, crash: Any) -> None:
    for seed in range(3):
        result = run(
            words(), {"lines": [LINES[::2], LINES[1::2]]}, batch=batch, crash=crash, seed=seed, checkpoint_every=6
        )
        assert len(result["out"]) == len(EXPECTED) and set(result["out"]) == EXPECTED


def test_a_batch_leaves_as_one_record_per_word() -> None:
    result = run(words(1), {"lines": LINES}, batch=1000)
    assert result.elements["counts/0"] <= 2 * len(EXPECTED) < len(" ".join(LINES).split())


def test_a_key_that_cannot_be_carried_is_a_dead_letter() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = (deep,)

    def build(lines: Any) -> Any:
        return lines.key_by(lambda line: deep if line == "deep" else line).window("counts", Global(), Count())

    result = ran(build, ["a", "deep", "a", "deep"], batch=10, on_error="dead-letter")
    assert result["out"] == [("a", 2, 0, 2)]
    letters = result["dead-letters"]  # one for each event that gave the key
    assert letters and all("cannot be encoded" in letter["error"] for letter in letters)


@pytest.mark.parametrize(
    ("arguments", "options", "counted"),
    [
        ((Global(), Count()), {}, True),
        ((Global(), Count()), {"trigger": at_end()}, True),
        ((Global(), Count()), {"trigger": every(3)}, False),
        ((Global(), Sum(len)), {}, False),
        ((Tumbling(5), Count()), {}, False),
    ],
)
def test_only_where_rows_cannot_differ(arguments: Any, options: Any, counted: bool) -> None:
    chain: Any = planned(
        lambda s: s.watermarks("time", time_of).key_by(first).window("w", *arguments, **options)
    ).chain(0)
    [kind] = {type(route) for branch in chain._branches for route in branch.routes}
    assert (kind is CountedRoute) == counted


# Routes of their own kind: what goes to all tasks, and what goes to the one task that there is.


def fail(index: int, key: object, problem: Exception) -> None:
    raise AssertionError((index, key is NO_KEY, problem))


def test_a_broadcast_route_gives_every_channel_all_records_in_order() -> None:
    route = BroadcastRoute("rules", [2, 0, 5])
    route.add([1, 2], fail)
    route.add([3], fail)
    assert route.drain() == [(2, [1, 2, 3]), (0, [1, 2, 3]), (5, [1, 2, 3])]
    assert route.drain() == []


def called(record: Any) -> Any:
    return (record,)[0][0]


ROWS = [(1, "a"), ("b", 2), (None, 3), (2.5, 4)]


@pytest.mark.parametrize("key_of", [itemgetter(0), called])
@pytest.mark.parametrize("batch", [ROWS, Rows([list(column) for column in zip(*ROWS, strict=True)])])
def test_one_task_is_given_what_several_would_be_given_together(key_of: Callable[[Any], Any], batch: Any) -> None:
    route = StraightRoute("count", [3], key_of, 16)
    route.add(batch, fail)
    [(ordinal, records)] = route.drain()
    assert ordinal == 3 and encode_records(records) == encode_records(ROWS)
    assert route.drain() == []
    route.add(batch, fail)
    route.add(ROWS[:1], fail)
    [(_, records)] = route.drain()
    assert records == [*ROWS, ROWS[0]]


@pytest.mark.parametrize("kind", [StraightRoute, KeyedRoute])
@pytest.mark.parametrize("key_of", [itemgetter(0), called])
def test_records_without_a_way_are_told_of_by_place_and_the_others_go(kind: Any, key_of: Callable[[Any], Any]) -> None:
    lost: list[tuple[int, Any, type]] = []
    route = kind("count", [0], key_of, 16)
    nan = float("nan")
    rows = [(1, "a"), ([], "b"), (2, "c"), (nan, "d"), ({}, "e")]
    route.add(rows, lambda index, key, problem: lost.append((index, key, type(problem))))
    assert lost == [(1, [], Unroutable), (3, nan, Unroutable), (4, {}, Unroutable)]
    assert route.drain() == [(0, [(1, "a"), (2, "c")])]
    lost.clear()
    route.add([(3,), 4, ()], lambda index, key, problem: lost.append((index, key, type(problem))))
    assert [(index, kind) for index, _, kind in lost] == [(1, TypeError), (2, IndexError)]
    assert route.drain() == [(0, [(3,)])]
    route.add([([], 1)], lambda index, key, problem: None)
    assert route.drain() == []
