"""The two inputs of an operator keep their places at an upgrade: state of one is never taken for the other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import BroadcastOperator, Count, Tumbling
from tests.unit.operators.versions import Build, Version


def key_of(record: Any) -> Any:
    return record["k"]


def time_of(record: Any) -> Any:
    return record["v"]


def pair(left: Any, right: Any) -> Any:
    return [left, right]


class Ruled(BroadcastOperator):
    """Gives nothing."""

    def process(self, record: Any, ctx: Any) -> Any:
        return None

    def process_broadcast(self, record: Any, ctx: Any) -> Any:
        return None


def timed(stream: Any, name: str) -> Any:
    return stream.watermarks(f"time-{name}", time_of).key_by(key_of)


def low(stream: Any, name: str = "low") -> Any:
    return stream.filter(name, lambda r: r["v"] < 5)


def high(stream: Any, name: str = "high") -> Any:
    return stream.filter(name, lambda r: r["v"] >= 5)


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "join": lambda a, b: timed(a, "a").join("j", timed(b, "b"), within=(1, 1), fn=pair),
    "window_join": lambda a, b: timed(a, "a").window_join("j", timed(b, "b"), Tumbling(5), fn=pair),
    "join_table": lambda a, b: a.key_by(key_of).join_table("j", b.key_by(key_of).table("t"), pair),
    "table_join": lambda a, b: a.key_by(key_of).table("ta").join("j", b.key_by(key_of).table("tb"), pair),
    "broadcast": lambda a, b: a.key_by(key_of).broadcast("j", b, Ruled()),
}


def joined(kind: str, swapped: bool = False, before: bool = False) -> Build:
    def build(streams: Any) -> dict[str, Any]:
        a, b = (stream.map(f"m{name}", dict) if before else stream for name, stream in zip("ab", streams, strict=True))
        rows = JOINS[kind](*((b, a) if swapped else (a, b)))
        return {"out": rows.revisions("r") if kind == "table_join" else rows}

    return build


@pytest.mark.parametrize("kind", JOINS)
def test_inputs_that_change_places_are_refused_and_others_before_them_are_not(kind: str) -> None:
    version = Version(joined(kind), ("a", "b")).give({"k": 1, "v": 2}, source="a")
    for before in (False, True):
        with pytest.raises(
            PipelineError, match="'j' keeps state for each of its inputs, and the inputs have changed places"
        ):
            version.becomes(Version(joined(kind, swapped=True, before=before), ("a", "b")), allow_dropped=True)
    version = version.becomes(Version(joined(kind, before=True), ("a", "b")))
    version.becomes(Version(joined(kind), ("a", "b"))).give({"k": 1, "v": 3}, source="b")


@pytest.mark.parametrize(
    "named",
    [JOINS["join_table"], lambda a, b: timed(a, "left").join("j", timed(b, "right"), within=(1, 1), fn=pair)],
    ids=["nothing is named by side", "an operator keeps its place"],
)
def test_branches_of_one_source_have_places_as_well(named: Callable[[Any, Any], Any]) -> None:
    def build(swapped: bool) -> Build:
        def join(stream: Any) -> dict[str, Any]:
            return {"out": named(*((high(stream), low(stream)) if swapped else (low(stream), high(stream))))}

        return join

    version = Version(build(False)).give({"k": 1, "v": 7})
    with pytest.raises(PipelineError, match="changed places"):
        version.becomes(Version(build(True)))
    version.becomes(Version(build(False)))


Branches = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Returns the two inputs of a join, of streams a, b and c."""


CHANGED_WITH_SOURCES: dict[str, tuple[Branches, Branches]] = {
    "sources are added before both": (
        lambda a, b, c: (low(a), high(a)), lambda a, b, c: (high(a).union(b), low(a).union(c)),
    ),
    "a source is added before one": (
        lambda a, b, c: (low(a), high(a)), lambda a, b, c: (high(a).union(b), low(a)),
    ),
    "sources are gone from before both": (
        lambda a, b, c: (low(a).union(b), high(a).union(c)), lambda a, b, c: (high(a), low(a)),
    ),
    "all sources are others": (lambda a, b, c: (low(a), high(a)), lambda a, b, c: (high(b), low(c))),
    "a source keeps its place": (
        lambda a, b, c: (low(a).union(b), high(a)), lambda a, b, c: (high(a).union(b), low(a)),
    ),
    "a source moves to the other input": (lambda a, b, c: (a, b), lambda a, b, c: (a.union(b), c)),
    "a source moves where one stays": (lambda a, b, c: (a.union(c), b), lambda a, b, c: (a, b.union(c))),
    "the shared one is read as it is": (lambda a, b, c: (a, high(a)), lambda a, b, c: (high(a), a)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["join_table", "broadcast"])
@pytest.mark.parametrize("change", CHANGED_WITH_SOURCES)
def test_branches_and_sources_that_change_together(change: str, kind: str) -> None:
    before, after = CHANGED_WITH_SOURCES[change]
    with pytest.raises(PipelineError, match="changed places"):
        read(kind, before).becomes(read(kind, after), allow_dropped=True)
    read(kind, before).becomes(read(kind, before))
    read(kind, after).becomes(read(kind, after))


def read(kind: str, branches: Branches) -> Version:
    """Return a version of a job that reads all of its sources, whichever of them the join reads."""

    def build(streams: Any) -> dict[str, Any]:
        left, right = branches(*streams)
        unread = {f"unread-{number}": stream for number, stream in enumerate(streams)}
        return {"out": JOINS[kind](left, right), **unread}

    return Version(build, ("a", "b", "c"))


CONTINUED: dict[str, tuple[Branches, Branches]] = {
    "names of operators change places behind their sources": (
        lambda a, b, c: (low(a, "m"), high(b, "n")), lambda a, b, c: (low(a, "n"), high(b, "m")),
    ),
    "a source is replaced on one side": (lambda a, b, c: (a, b), lambda a, b, c: (a, c)),
    "an operator moves before the other branch": (
        lambda a, b, c: (low(a), high(a)), lambda a, b, c: (high(low(a, "low-too"), "high-too"), high(a)),
    ),
    "sources are added": (lambda a, b, c: (low(a), high(a)), lambda a, b, c: (low(a).union(b), high(a).union(c))),
    "both read a source now": (lambda a, b, c: (a, b), lambda a, b, c: (a.union(c), b.union(c))),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["join_table", "broadcast"])
@pytest.mark.parametrize("change", CONTINUED)
def test_inputs_that_keep_their_places_continue(change: str, kind: str) -> None:
    before, after = CONTINUED[change]
    read(kind, before).becomes(read(kind, after))
    read(kind, after).becomes(read(kind, before))


@pytest.mark.parametrize("each", [False, True], ids=["watermarks of the union", "watermarks of each"])
@pytest.mark.parametrize("new", [("high", "low"), ("high", "other"), ("other", "low"), ("one", "two")])
def test_branches_of_a_union_keep_their_event_time_wherever_they_stand(each: bool, new: Sequence[str]) -> None:
    kept = {"low": low, "high": high, "other": low if "high" in new else high, "one": high, "two": low}

    def build(*names: str) -> Build:
        def windowed(stream: Any) -> dict[str, Any]:
            branches = [kept[name](stream, name) for name in names]
            if each:
                branches = [of.watermarks(f"w-{name}", time_of) for name, of in zip(names, branches, strict=True)]
            united = branches[0].union(branches[1])
            timed = united if each else united.watermarks("w", time_of)
            return {"out": timed.key_by(key_of).window("win", Tumbling(2), Count())}

        return windowed

    version = Version(build("low", "high")).give({"k": 1, "v": 0}, {"k": 1, "v": 100})
    version = version.becomes(Version(build(*new)), allow_dropped=True)
    version.give({"k": 1, "v": 101}).give({"k": 1, "v": 1}).give({"k": 1, "v": 4})
    assert [value for _, value, *_ in version.out["out"]] == [2]
