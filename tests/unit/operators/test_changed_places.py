"""The two inputs of an operator keep their places at an upgrade: what is kept of one is never taken for the other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import BroadcastOperator, Tumbling
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
def test_inputs_that_change_places_are_refused(kind: str) -> None:
    version = Version(joined(kind), ("a", "b")).give({"k": 1, "v": 2}, source="a")
    for swapped in (joined(kind, swapped=True), joined(kind, swapped=True, before=True)):
        with pytest.raises(PipelineError, match="'j' keeps state of each of its inputs, and these have changed places"):
            version.becomes(Version(swapped, ("a", "b")), allow_dropped=True)


@pytest.mark.parametrize("kind", JOINS)
def test_inputs_with_other_operators_before_them_continue(kind: str) -> None:
    version = Version(joined(kind), ("a", "b")).give({"k": 1, "v": 2}, source="a")
    version = version.becomes(Version(joined(kind, before=True), ("a", "b")))
    version.becomes(Version(joined(kind), ("a", "b"))).give({"k": 1, "v": 3}, source="b")


OF_BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "nothing is named by side": JOINS["join_table"],
    "an operator keeps its place": lambda a, b: timed(a, "left").join("j", timed(b, "right"), within=(1, 1), fn=pair),
}


@pytest.mark.parametrize("how", OF_BRANCHES)
def test_branches_of_one_source_have_places_as_well(how: str) -> None:
    def build(low: str, high: str) -> Build:
        def join(stream: Any) -> dict[str, Any]:
            branches = {
                "low": stream.filter("low", lambda r: r["v"] < 5), "high": stream.filter("high", lambda r: r["v"] >= 5),
            }  # fmt: skip
            return {"out": OF_BRANCHES[how](branches[low], branches[high])}

        return join

    version = Version(build("low", "high")).give({"k": 1, "v": 7})
    with pytest.raises(PipelineError, match="changed places"):
        version.becomes(Version(build("high", "low")))
    version.becomes(Version(build("low", "high")))
