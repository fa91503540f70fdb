"""Changed, new and removed functions of tables at an upgrade: what was sent is taken back as it was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import Operator
from operators.kinds.windows.aggregates import Aggregate, Count, Max, Mean, Min, Sum
from operators.kinds.windows.assigners import Tumbling
from tests.unit.operators.versions import Build, Version


def row(key: int, value: int) -> dict[str, int]:
    return {"k": key, "v": value}


def table(stream: Any) -> Any:
    return stream.key_by(lambda r: r["k"]).table("t")


def value_of(value: Any) -> Any:
    return value["v"]


def plain(rows: Any) -> Any:
    return rows


def from_3(rows: Any) -> Any:
    return rows.filter("f", lambda key, value: value["v"] >= 3)


def tenfold(rows: Any) -> Any:
    return rows.map_values("m", lambda key, value: row(value["k"], value["v"] * 10))


def grouped(derive: Callable[[Any], Any], group: Callable[[Any, Any], Any] = lambda key, value: 0) -> Build:
    def build(stream: Any) -> dict[str, Any]:
        rows = derive(table(stream)).group_by("g", group)
        return {"out": rows.aggregate("w", Sum(value_of)).revisions("rv")}

    return build


def positive(rows: Any) -> Any:
    return rows.filter("f", lambda key, value: value["v"] >= 0)


def raising(rows: Any) -> Any:
    return rows.map_values("m", lambda key, value: row(value["k"], 12 // (value["v"] - 1)))


@pytest.mark.parametrize(
    "before, after, total",
    [
        (from_3, plain, 8), (from_3, positive, 8), (plain, from_3, 6), (plain, tenfold, 80), (tenfold, plain, 8),
        (plain, lambda rows: tenfold(from_3(rows)), 60), (raising, plain, 8), (plain, raising, 14),
    ],
)  # fmt: skip
def test_a_group_ends_with_the_rows_of_its_table(before: Any, after: Any, total: int) -> None:
    settings = {"on_error": "dead-letter"}
    version = Version(grouped(before), **settings).give(row(1, 1)).give(row(2, 5))
    version = version.becomes(Version(grouped(after), **settings)).give(row(1, 6)).give(row(2, 2))
    assert version.out["out"][-1][2] == total


def aggregates(*names: str, group: str = "g") -> Build:
    def build(stream: Any) -> dict[str, Any]:
        rows = table(stream).group_by(group, lambda key, value: 0)
        return {f"{name}-out": rows.aggregate(name, Sum(value_of)).revisions(f"r{name}") for name in names}

    return build


def test_an_aggregate_that_is_new_takes_back_nothing_and_one_that_stays_all() -> None:
    version = Version(aggregates("w")).give(row(1, 1)).give(row(2, 5))
    version = version.becomes(Version(aggregates("w", "new", group="other"))).give(row(1, 6))
    assert version.out == {"w-out": [(0, 6, 5), (0, 5, 11)], "new-out": [(0, None, 6)]}
    version = version.becomes(Version(aggregates("renamed")), allow_dropped=True).give(row(1, 7)).give(row(2, 1))
    assert version.out == {"renamed-out": [(0, None, 7), (0, 7, 8)]}


def test_revisions_and_streams_that_are_new_have_sent_nothing() -> None:
    def build(*names: str) -> Build:
        return lambda stream: {
            **{name: table(stream).revisions(f"r{name}") for name in names[:1]},
        }

    def more(stream: Any) -> dict[str, Any]:
        rows = table(stream)
        return {"a": rows.revisions("ra"), "b": rows.revisions("rb"), "c": rows.to_stream("c-stream")}

    version = Version(build("a")).give(row(1, 1)).becomes(Version(more)).give(row(1, 2)).give(row(1, 3))
    one, two, three = row(1, 1), row(1, 2), row(1, 3)
    assert version.out == {
        "a": [(1, one, two), (1, two, three)],
        "b": [(1, None, two), (1, two, three)],
        "c": [(1, two), (1, three)],
    }


def test_revisions_that_have_sent_rows_of_another_table_are_refused() -> None:
    def build(joined: bool) -> Build:
        def tables(streams: Any) -> dict[str, Any]:
            left, right = (stream.key_by(lambda r: r["k"]).table(f"t{n}") for n, stream in enumerate(streams))
            rows = left.join("j", right, lambda a, b: [a, b])
            return {"out": (rows if joined else left).revisions("r"), "joined": rows.revisions("rj")}

        return tables

    version = Version(build(joined=False), ("a", "b")).give(row(1, 1), source="a")
    with pytest.raises(PipelineError, match="revisions 'r' has rows of table 't0' but now reads 'j'"):
        version.becomes(Version(build(joined=True), ("a", "b")))
    Version(build(joined=False), ("a", "b")).becomes(Version(build(joined=True), ("a", "b")))


def total_of(result: Any) -> Aggregate[Any, Any]:
    return Aggregate(
        int,
        lambda total, record: total + record["v"],
        result,
        subtract=lambda total, record: total - record["v"],
    )


def windows(result: Any = None, grace_s: float = 0, derive: Callable[[Any], Any] = plain) -> Build:
    def build(stream: Any) -> dict[str, Any]:
        timed = stream.watermarks("times", lambda r: r["t"]).key_by(lambda r: r["k"])
        rows = timed.window_table("a", Tumbling(10), total_of(result), grace_s=grace_s)
        return {"out": derive(rows).revisions("ra")}

    return build


def timed(time: float, value: int = 1) -> dict[str, Any]:
    return {**row(1, value), "t": time}


def test_windows_take_back_what_they_sent() -> None:
    version = Version(windows()).give(timed(1)).give(timed(11, 2))
    version = version.becomes(Version(windows(lambda n: n * 100))).give(timed(12, 3))
    assert version.out["out"] == [((1, 10.0, 20.0), 2, 500)]
    version = version.becomes(Version(windows(derive=lambda rows: rows.filter("f", lambda key, value: value > 100))))
    assert version.give(timed(13, 1)).give(timed(25, 200)).out["out"] == [
        ((1, 10.0, 20.0), 500, None),
        ((1, 20.0, 30.0), None, 200),
    ]


def test_a_window_that_is_over_does_not_begin_again_with_more_grace() -> None:
    version = Version(windows()).give(timed(1, 3)).give(timed(11, 2))
    version = (
        version.becomes(Version(windows(grace_s=30))).give(timed(2)).give(timed(12)).give(timed(22)).give(timed(13))
    )
    assert version.out["out"] == [((1, 10.0, 20.0), 2, 3), ((1, 20.0, 30.0), None, 1), ((1, 10.0, 20.0), 3, 4)]
    assert version.chains[1].counts()["a"] == {"late": 1}
    version = version.becomes(Version(windows())).give(timed(14)).give(timed(23))
    assert version.out["out"] == [((1, 20.0, 30.0), 1, 2)]


@pytest.mark.parametrize("before", ["Sum", "Mean", "Min", "Max", "Count"])
@pytest.mark.parametrize("after", ["Sum", "Mean", "Min", "Max", "Count", "tenfold"])
def test_an_aggregate_that_could_not_take_back_what_was_added_is_refused(before: str, after: str) -> None:
    known: dict[str, Aggregate[Any, Any]] = {
        "Sum": Sum(value_of), "Mean": Mean(value_of), "Min": Min(value_of), "Max": Max(value_of), "Count": Count(),
        "tenfold": Sum(lambda value: value["v"] * 10),
    }  # fmt: skip

    def build(name: str) -> Build:
        return lambda stream: {
            "out": table(stream).group_by("g", lambda key, value: 0).aggregate("w", known[name]).revisions("rv")
        }

    version = Version(build(before)).give(row(1, 4))
    if after == before or {before, after} == {"Min", "Max"}:
        out = version.becomes(Version(build(after))).give(row(1, 3)).out
        assert out == ({} if before == "Count" else {"out": [(0, 4, 3)]})
    else:
        with pytest.raises(
            PipelineError, match=r"aggregate 'w' (was|does not retract \{'k': 1, 'v': 4\} from group 0 as)"
        ):
            version.becomes(Version(build(after)))
        renamed = Version(lambda stream: {
            "out": table(stream).group_by("g", lambda key, value: 0).aggregate("w2", known[after]).revisions("rv")
        })  # fmt: skip
        assert version.becomes(renamed, allow_dropped=True).give(row(1, 3)).out["out"][0][1] is None


def test_what_keeps_rows_is_not_given_those_of_another_table() -> None:
    def build(name: str, joined: bool) -> Build:
        def built(stream: Any) -> dict[str, Any]:
            by_key = stream.key_by(lambda r: r["k"])
            tables = {"t": by_key.table("t"), "u": by_key.table("u")}
            if joined:
                others = by_key.table("o")
                return {"out": tables[name].join("w", others).revisions("r"), "u-out": tables["u"].revisions("ru"),
                        "t-out": tables["t"].revisions("rt")}  # fmt: skip
            rows = tables[name].group_by("g", lambda key, value: 0).aggregate("w", Count())
            return {
                "out": rows.revisions("r"),
                "u-out": tables["u"].revisions("ru"),
                "t-out": tables["t"].revisions("rt"),
            }

        return built

    for joined in (False, True):
        version = Version(build("t", joined)).give(row(1, 1))
        with pytest.raises(PipelineError, match="'w' has rows of table 't' but now reads 'u'"):
            version.becomes(Version(build("u", joined)))


def test_what_is_held_is_taken_back_as_it_was_sent() -> None:
    def build(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Build:
        def built(stream: Any) -> dict[str, Any]:
            stream = stream.watermarks("times", lambda r: r["t"])
            rows = then(first(table(stream).map_values("v", lambda key, value: value["v"])).suppress("s", after_s=5))
            return {"out": rows.revisions("rv")}

        return built

    def negative(rows: Any) -> Any:
        return rows.map_values(f"n{rows.name}", lambda key, value: -value)

    version = Version(build(plain, plain)).give(timed(0, 1)).give(timed(9, 1)).give(timed(10, 2))
    assert version.out["out"] == [(1, None, 1)]
    version = version.becomes(Version(build(negative, negative)))
    assert version.give({**row(2, 8), "t": 20}).out["out"] == [(1, 1, -2), (2, None, 8)]
    assert version.give(timed(21, 3)).give(timed(30, 3)).out["out"] == [(1, 1, -2), (2, None, 8), (1, -2, 3)]


def test_what_is_held_of_a_row_that_is_gone_is_taken_back() -> None:
    def deleted(stream: Any) -> dict[str, Any]:
        timed = table(stream.watermarks("times", lambda r: r["t"]))
        sums = timed.group_by("g", lambda key, value: value["v"] % 2).aggregate("w", Sum(value_of))
        return {"out": sums.suppress("s", after_s=5).revisions("rv")}

    def closed(stream: Any) -> dict[str, Any]:
        by_key = stream.watermarks("times", lambda r: r["t"]).key_by(lambda r: r["k"])
        counts = by_key.window_table("w", Tumbling(10), Count())
        return {"out": counts.suppress("s", after_s=4).revisions("rv")}

    version = Version(deleted).give(timed(0, 2)).give(timed(9, 2)).give(timed(10, 3)).becomes(Version(deleted))
    assert version.give(timed(20, 3)).out["out"] == [(0, 2, None), (1, None, 3)]
    version = Version(closed).give(timed(0)).give(timed(7)).give(timed(8)).give(timed(10))
    assert version.out["out"] == [((1, 0, 10), None, 2)]
    assert version.becomes(Version(closed)).give(timed(11)).out["out"] == [((1, 0, 10), 2, 3)]


class Total(Operator):
    """The total of a key so far; an older record revises it."""

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["total"] = ctx.state.get("total", 0) + record["v"]
        yield row(record["k"], ctx.state["total"])


def test_speculative_outputs_are_taken_back_as_they_were_sent() -> None:
    def build(first: Callable[[Any], Any], group: int) -> Build:
        def built(stream: Any) -> dict[str, Any]:
            timed = stream.watermarks("times", lambda r: r["t"], out_of_order_s=10).key_by(lambda r: r["k"])
            rows = first(timed.process("totals", Total(), delivery="speculative"))
            sums = rows.group_by("g", lambda key, value: value["k"] * group).aggregate("w", Sum(value_of))
            return {"out": sums.revisions("rv")}

        return built

    version = Version(build(from_3, 1)).give(timed(5, 1)).give(timed(7, 2))
    assert version.out["out"] == [(1, None, 3)]
    version = version.becomes(Version(build(tenfold, 2))).give(timed(6, 4))
    assert version.out["out"] == [(2, None, 50), (1, 3, None), (2, 50, 120)]
