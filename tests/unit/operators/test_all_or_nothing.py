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
from operators.testing import At, run
from tests.oracles.frame import sink, source
from tests.unit.operators.window_scene import Driven, S, window_chain

LETTERS: dict[str, Any] = {"on_error": "dead-letter"}


def inverse(record: Any) -> Any:
    return 10 // record["v"]


def of_groups(aggregate: Aggregate[Any, Any], values: list[int], others: Any = (), **options: Any) -> Any:
    """Return the run of a table of one row that takes these values, after rows that stay as they are."""
    pipeline = Pipeline("p")
    table = source(pipeline).key_by(lambda r: r["id"]).table("t")
    sink(table.group_by("by", lambda key, row: "all").aggregate("sum", aggregate).revisions("rows"))
    rows = [{"id": -v, "v": v} for v in others] + [{"id": 1, "v": v} for v in values]
    return run(pipeline, {"in": rows}, **LETTERS, **options)


def test_a_group_takes_the_old_value_back_though_it_refuses_the_new_one() -> None:
    result = of_groups(Sum(inverse), [1, 0, 5], crash={"rows/0": 2}, checkpoint_every=1)
    assert result["out"] == [("all", None, 10), ("all", 10, None), ("all", None, 2)]
    assert [letter["error"] for letter in result["dead-letters"]] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]


def test_a_result_that_raises_once_leaves_its_key_alive() -> None:
    def some(total: int) -> int:
        return 10 // (total - 3)

    pipeline = Pipeline("p")
    keyed = source(pipeline).timed(lambda r: r["at"]).key_by(lambda r: r["k"])
    total: Aggregate[Any, Any] = Aggregate(int, lambda accumulated, r: accumulated + r["v"], result=some)
    sink(keyed.aggregate_table("a", total).revisions("rows-a"), "out-a")
    sink(keyed.window_table("w", Sliding(4, 2), total).revisions("rows-w"), "out-w")
    rows = [{"k": "x", "at": 2, "v": v} for v in (1, 2, 4)]  # 2 makes it 3
    result = run(pipeline, {"in": rows}, **LETTERS)
    assert result["out-a"] == [("x", None, -5), ("x", -5, 5)]
    assert result["out-w"] == [
        (("x", start, start + 4), old, new) for old, new in ((None, -5), (-5, 5)) for start in (0.0, 2.0)
    ]
    assert [letter["operator"] for letter in result["dead-letters"]] in (["a", "w"], ["w", "a"])
    assert all(letter["record"] == rows[1] for letter in result["dead-letters"])


def test_a_group_of_which_nothing_can_be_told_has_no_row_until_it_has_one_again() -> None:
    total: Aggregate[Any, Any] = Aggregate(
        int,
        lambda accumulated, r: accumulated + r["v"],
        lambda accumulated: 12 // accumulated,
        None,
        lambda accumulated, r: accumulated - r["v"],
    )
    pipeline = Pipeline("p")
    table = source(pipeline).key_by(lambda r: r["id"]).table("t")
    groups = table.filter("f", lambda key, row: row["v"] != 9).group_by("by", lambda key, row: "all")
    sink(groups.aggregate("sum", total).revisions("rows"))
    rows = [{"id": 1, "v": 2}, {"id": 2, "v": -2}, {"id": 3, "v": 4}, {"id": 2, "v": -4}, {"id": 1, "v": 9}]
    result = run(pipeline, {"in": [*rows, {"id": 1, "v": 6}]}, **LETTERS)
    # 2; -2 is refused; 2 + 4; -4 is refused no more: 6 - 4; then 2 goes: 12 // 0
    assert result["out"] == [
        ("all", None, 6), ("all", 6, 2), ("all", 2, 6), ("all", 6, None), ("all", None, 2)
    ]  # fmt: skip
    assert len(result["dead-letters"]) == 2


def test_what_a_group_cannot_take_back_stops_the_job() -> None:
    def refuses(accumulated: int, row: Any) -> int:
        raise ValueError("cannot")

    with pytest.raises(OperatorFailed, match="operator 'sum'.*ValueError: cannot.*taken back"):
        of_groups(Aggregate(int, lambda accumulated, row: accumulated + 1, subtract=refuses), [1, 2], others=[7])


@pytest.mark.parametrize("bad_first", [False, True])
def test_a_refused_record_shapes_no_session(bad_first: bool) -> None:
    def built() -> Any:
        aggregation = Sum[Any](lambda record: 12 // record[2])
        return window_chain(Session(10), aggregation, job=LETTERS)

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

    pipeline = Pipeline("p")
    stream = source(pipeline).watermarks("time", lambda r: r, out_of_order_s=100)
    sink(stream.window("w", Session(10), Aggregate(list, lambda accumulated, r: [*accumulated, r], merge=merged)))
    result = run(pipeline, {"in": [0, 16, 8, 30]}, batch=9, **LETTERS)
    assert result["out"] == [(None, [0], 0.0, 10.0), (None, [16], 16.0, 26.0), (None, [30], 30.0, 40.0)]
    assert [letter["record"] for letter in result["dead-letters"]] == [8]


def test_a_record_is_in_all_of_its_windows_or_in_none_and_is_one_letter() -> None:
    def add(accumulated: int, record: Any) -> int:
        if accumulated + record["v"] == 13:
            raise ValueError("13")
        return int(accumulated + record["v"])

    rows = [{"at": 1, "v": 5}, {"at": 3, "v": 8}, {"at": 3, "v": 1}]  # 8 is refused by one of its windows
    for kind in ("panes", "triggered", "table"):
        pipeline = Pipeline("p")
        stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=100).key_by(lambda r: 0)
        if kind == "table":
            sink(stream.window_table("w", Sliding(4, 2), Aggregate(int, add)).revisions("rows"))
            last = {key[1]: new for key, _, new in run(pipeline, {"in": rows}, **LETTERS)["out"]}
        else:
            options: Any = {"trigger": every(1)} if kind == "triggered" else {}
            sink(stream.window("w", Sliding(4, 2), Aggregate(int, add), **options))
            last = {start: value for _, value, start, _ in run(pipeline, {"in": rows}, **LETTERS)["out"]}
        assert last == {-2.0: 5, 0.0: 6, 2.0: 1}, kind
        letters = run(pipeline, {"in": rows}, batch=9, **LETTERS)["dead-letters"]
        assert [letter["record"] for letter in letters] == [rows[1]], kind


def test_a_count_window_puts_aside_what_its_aggregate_refuses_and_the_window_whose_result_raises() -> None:
    pipeline = Pipeline("p")
    total: Aggregate[Any, Any] = Aggregate(
        int, lambda accumulated, r: accumulated + 10 // r, result=lambda accumulated: 100 // (accumulated - 15)
    )
    for name, windows in (("w", CountWindow(2)), ("s", CountWindow(2, every=1))):
        sink((source(pipeline, f"in-{name}")).window(name, windows, total), f"out-{name}")
    rows = [1, 0, 1, 1, 2, 5]  # 10 + 10, 10 + 5: no result, 2 ...
    result = run(pipeline, {"in-w": rows, "in-s": rows}, **LETTERS)
    assert result["out-w"] == [(None, 20, 0, 2)]
    assert result["out-s"] == [(None, -20, 0, 1), (None, 20, 0, 2), (None, 20, 1, 3), (None, -13, 3, 5)]
    letters = {name: [one["record"] for one in result["dead-letters"] if one["operator"] == name] for name in "ws"}
    assert letters == {"w": [0, {"window": [2, 4]}], "s": [0, {"window": [2, 4]}]}


@pytest.mark.parametrize("trigger", [None, every(1)])
def test_windows_do_not_share_what_they_keep_of_a_record(trigger: Any) -> None:
    def grows(accumulated: Any, record: Any) -> Any:
        if accumulated is None:
            return record
        accumulated["v"] += record["v"]
        return accumulated

    pipeline = Pipeline("p")
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=100)
    options = {} if trigger is None else {"trigger": trigger}
    sink(stream.window("w", Sliding(4, 2), Aggregate(lambda: None, grows), **options))

    def spoils(key: Any, records: Any, window: Any) -> Any:
        for record in records:
            record["v"] += 1
        yield window.start, [record["v"] for record in records]

    sink(stream.window("f", Sliding(4, 2), spoils, **options), "values")
    rows = [{"at": 1, "v": 1}, {"at": 3, "v": 10}]
    result = run(pipeline, {"in": rows}, crash={"f/0": 1}, checkpoint_every=1)
    last = {start: value["v"] for _, value, start, _ in result["out"]}
    assert last == {-2.0: 1, 0.0: 11, 2.0: 10}
    assert dict(result["values"]) == {-2.0: [2], 0.0: [2, 11], 2.0: [11]}


def test_a_function_of_a_window_that_raises_has_given_nothing() -> None:
    def rows(key: Any, records: Any, window: Any) -> Any:
        yield len(records)
        raise ValueError("late in its life")

    for windows in (Tumbling(10), Tumbling(10, clock="processing"), Sliding(4, 2), Session(3)):
        pipeline = Pipeline("p")
        stream = source(pipeline).watermarks("time", lambda r: r)
        sink(stream.window("w", windows, rows))
        result = run(pipeline, {"in": [1, 2]}, **LETTERS)
        assert result["out"] == [] and result["dead-letters"], windows


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

    pipeline = Pipeline("p")
    sink(source(pipeline).key_by(lambda r: 0).process("p", Removes()))
    result = run(pipeline, {"in": ["fill", "spoil", "look"]}, **LETTERS)
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

    pipeline = Pipeline("p")
    sink(source(pipeline).process("op", Recent()))
    result = run(pipeline, {"in": [begun, "bad", [8]]}, checkpoint_every=1, crash={"op/0": 2}, **LETTERS)
    assert result["out"] == [begun, [*begun, 8]]


def cleared(op: Any) -> None:
    op.value.clear()
    op.items.clear()
    op.named.clear()
    op.total.clear()


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
        pipeline = Pipeline("p")
        sink(source(pipeline).key_by(lambda r: 0).process("p", Lives()))
        return run(pipeline, {"in": sorted(records, key=lambda at: at.seconds)}, **LETTERS, **settings)["out"]

    good = [At(1, "set"), *(At(t + 0.5, "look") for t in range(30)), At(31, "set"), At(36, "look"), At(42, "look")]
    expected = rows(*good)
    assert [row[1:] for row in expected][-4:] == [
        (None, [], {}, None),
        *[(1, [1], {"a": 1}, 1)] * 2,
        (None, [], {}, None),
    ]
    assert rows(*good, *(At(t, "spoil") for t in range(0, 60, 3))) == expected
