"""A record that becomes a dead letter has had no effect; random examples are in tests/oracles/letters.py."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import OperatorFailed
from operators import (
    Aggregate,
    CountWindow,
    ListState,
    MapState,
    Operator,
    Pipeline,
    ReducingState,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
    every,
)
from operators.testing import At, TrialResult, run
from tests.oracles.frame import sink, source
from tests.unit.operators.scene import ran
from tests.unit.operators.window_scene import Driven, S, window_chain


def letters(build: Any, records: Any, **options: Any) -> TrialResult:
    return ran(build, records, on_error="dead-letter", **options)


def timed(stream: Any) -> Any:
    return stream.watermarks("time", lambda r: r["at"], out_of_order_s=100)


def everyone(key: Any, row: Any) -> Any:
    return "all"


def test_what_a_group_cannot_take_back_stops_the_job() -> None:
    def refuses(accumulated: int, row: Any) -> int:
        raise ValueError("cannot")

    counts: Aggregate[Any, Any] = Aggregate(int, lambda accumulated, row: accumulated + 1, subtract=refuses)

    def build(stream: Any) -> Any:
        return stream.key_by(lambda r: r[0]).table("t").group_by("by", everyone).aggregate("sum", counts).revisions("r")

    with pytest.raises(OperatorFailed, match="operator 'sum'.*ValueError: cannot.*taken back"):
        letters(build, [(-7, 7), (1, 1), (1, 2)])


@pytest.mark.parametrize("bad_first", [False, True])
def test_a_refused_record_shapes_no_session(bad_first: bool) -> None:
    def built() -> Any:
        return window_chain(Session(10), Sum[Any](lambda record: 12 // record[2]), job={"on_error": "dead-letter"})

    driven = Driven(built)
    driven.give([("a", 5, 0)] if bad_first else [("a", 0, 1), ("a", 16, 2), ("a", 8, 0)])
    driven.restore(built)
    driven.give([("a", 1000, 0), ("a", 20, 3)], 900 * S)
    whole = [("a", 4, 20.0, 30.0)] if bad_first else [("a", 12, 0.0, 10.0), ("a", 10, 16.0, 30.0)]
    assert [row for row in driven.out if type(row) is tuple] == whole


def test_sessions_whose_merge_raises_stay_apart() -> None:
    def merged(first: Any, second: Any) -> Any:
        first.append("changed")
        raise ValueError("no")

    whole: Aggregate[Any, Any] = Aggregate(list, lambda accumulated, r: [*accumulated, r["at"]], merge=merged)
    rows = [{"at": at} for at in (0, 16, 8, 30)]
    result = letters(lambda stream: timed(stream).window("w", Session(10), whole), rows, batch=9)
    assert result["out"] == [(None, [0], 0.0, 10.0), (None, [16], 16.0, 26.0), (None, [30], 30.0, 40.0)]
    assert [letter["record"] for letter in result["dead-letters"]] == [{"at": 8}]


@pytest.mark.parametrize("kind", ["panes", "triggered", "table"])
def test_a_record_is_in_all_of_its_windows_or_in_none_and_is_one_letter(kind: str) -> None:
    def add(accumulated: int, record: Any) -> int:
        if accumulated + record["v"] == 13:
            raise ValueError("13")
        return int(accumulated + record["v"])

    def build(stream: Any) -> Any:
        keyed = timed(stream).key_by(lambda r: 0)
        if kind == "table":
            return keyed.window_table("w", Sliding(4, 2), Aggregate(int, add)).to_stream("s", lambda key, n: (*key, n))
        options: Any = {"trigger": every(1)} if kind == "triggered" else {}
        windows = keyed.window("w", Sliding(4, 2), Aggregate(int, add), **options)
        return windows.map("s", lambda row: (row[0], row[2], row[3], row[1]))

    rows = [{"at": 1, "v": 5}, {"at": 3, "v": 8}, {"at": 3, "v": 1}]  # 8 is refused by one of its windows
    for batch in (1, 9):
        result = letters(build, rows, batch=batch)
        assert {start: n for _, start, _, n in result["out"]} == {-2.0: 5, 0.0: 6, 2.0: 1}
        assert [letter["record"] for letter in result["dead-letters"]] == [rows[1]]


def test_a_count_window_puts_aside_what_its_aggregate_refuses_and_the_window_whose_result_raises() -> None:
    total: Aggregate[Any, Any] = Aggregate(
        int, lambda accumulated, r: accumulated + 10 // r, result=lambda accumulated: 100 // (accumulated - 15)
    )
    rows = [1, 0, 1, 1, 2, 5]  # 10 + 10, 10 + 5: no result, 2 ...
    for windows, expected in (
        (CountWindow(2), [(None, 20, 0, 2)]),
        (CountWindow(2, every=1), [(None, -20, 0, 1), (None, 20, 0, 2), (None, 20, 1, 3), (None, -13, 3, 5)]),
    ):
        result = letters(lambda stream: stream.window("w", windows, total), rows)  # noqa: B023
        assert result["out"] == expected
        assert [letter["record"] for letter in result["dead-letters"]] == [0, {"window": [2, 4]}]


@pytest.mark.parametrize("trigger", [None, every(1)])
def test_windows_do_not_share_what_they_keep_of_a_record(trigger: Any) -> None:
    def grows(accumulated: Any, record: Any) -> Any:
        if accumulated is None:
            return record
        accumulated["v"] += record["v"]
        return accumulated

    def spoils(key: Any, records: Any, window: Any) -> Any:
        for record in records:
            record["v"] += 1
        yield window.start, [record["v"] for record in records]

    pipeline = Pipeline("p")
    stream = timed(source(pipeline))
    options = {} if trigger is None else {"trigger": trigger}
    sink(stream.window("w", Sliding(4, 2), Aggregate(lambda: None, grows), **options))
    sink(stream.window("f", Sliding(4, 2), spoils, **options), "values")
    rows = [{"at": 1, "v": 1}, {"at": 3, "v": 10}]
    result = run(pipeline, {"in": rows}, crash={"f/0": 1}, checkpoint_every=1)
    assert {start: value["v"] for _, value, start, _ in result["out"]} == {-2.0: 1, 0.0: 11, 2.0: 10}
    assert dict(result["values"]) == {-2.0: [2], 0.0: [2, 11], 2.0: [11]}


@pytest.mark.parametrize("windows", [Tumbling(10), Tumbling(10, clock="processing"), Sliding(4, 2), Session(3)])
def test_a_function_of_a_window_that_raises_has_given_nothing(windows: Any) -> None:
    def rows(key: Any, records: Any, window: Any) -> Any:
        yield len(records)
        raise ValueError("late in its life")

    result = letters(lambda stream: timed(stream).window("w", windows, rows), [{"at": 1}, {"at": 2}])
    assert result["out"] == [] and result["dead-letters"]


@pytest.mark.parametrize("far", [0, 70, 150, 299])
def test_an_entry_that_is_put_back_is_at_its_place(far: int) -> None:
    class Removes(Operator):
        named = MapState[int, int]()

        def process(self, record: Any, ctx: Any) -> Any:
            if record == "fill":
                self.named.update({number: number for number in range(300)})
            elif record == "spoil":
                del self.named[far]
                self.named[far] = -1
                self.named[-1] = 1
                raise ValueError(record)
            yield list(self.named.items())

    result = letters(lambda stream: stream.key_by(lambda r: 0).process("p", Removes()), ["fill", "spoil", "look"])
    assert result["out"][1] == result["out"][0] and len(result["dead-letters"]) == 1


@pytest.mark.parametrize("begun", [[], [3, 1, 2]])
def test_a_list_is_as_it_was_before_the_record_that_cut_sorted_and_emptied_it(begun: list[int]) -> None:
    class Recent(Operator):
        items = ListState[int]()

        def process(self, record: Any, ctx: Any) -> Any:
            if record == "bad":
                self.items.append(9)
                self.items.sort()
                self.items[:2] = [7]
                del self.items[-1]
                self.items.insert(0, 5)
                self.items[:] = []
                self.items.extend([4])
                raise ValueError("bad")
            self.items.extend(record)
            yield list(self.items)

    result = letters(
        lambda stream: stream.process("op", Recent()), [begun, "bad", [8]], checkpoint_every=1, crash={"op/0": 2}
    )
    assert result["out"] == [begun, [*begun, 8]]


def cleared(op: Any) -> None:
    for state in (op.value, op.items, op.named, op.total):
        state.clear()


def cleared_and_written(op: Any) -> None:
    cleared(op)
    op.value.value, op.named["b"] = 2, 2
    op.items.append(2)
    op.total.add(2)


def written_and_removed(op: Any) -> None:
    op.named["b"] = 2
    op.named.pop("b")
    op.named.pop("a", None)
    op.items[:] = []
    cleared(op)


@pytest.mark.parametrize("settings", [{}, {"state": "disk"}], ids=["memory", "disk"])
@pytest.mark.parametrize("spoil", [cleared, cleared_and_written, written_and_removed])
def test_a_record_that_fails_renews_no_time_to_live_of_the_wall_clock(spoil: Any, settings: dict[str, Any]) -> None:
    class Lives(Operator):
        value = ValueState[int](ttl_s=8, clock="processing")
        items = ListState[int](ttl_s=8, clock="processing")
        named = MapState[str, int](ttl_s=8, clock="processing")
        total = ReducingState[int](lambda a, b: a + b, ttl_s=8, clock="processing")

        def process(self, record: Any, ctx: Any) -> Any:
            if record == "spoil":
                spoil(self)
                raise ValueError(record)
            if record == "set":
                self.value.value, self.named["a"] = 1, 1
                self.items.append(1)
                self.total.add(1)
            yield record, self.value.value, list(self.items), dict(self.named), self.total.value

    def rows(*records: At) -> list[Any]:
        by_time = sorted(records, key=lambda at: at.seconds)
        return letters(lambda stream: stream.key_by(lambda r: 0).process("p", Lives()), by_time, **settings)["out"]

    good = [At(1, "set"), *(At(t + 0.5, "look") for t in range(30)), At(31, "set"), At(36, "look"), At(42, "look")]
    expected = rows(*good)
    gone: Any = (None, [], {}, None)
    assert [row[1:] for row in expected][-4:] == [gone, *[(1, [1], {"a": 1}, 1)] * 2, gone]
    assert rows(*good, *(At(t, "spoil") for t in range(0, 60, 3))) == expected
