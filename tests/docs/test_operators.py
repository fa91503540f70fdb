"""Compares docs/operators.md with the operators: their logs with those of a run, and the list with all public names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import operators
import operators.sinks
import operators.sources
import operators.testing
from operators import (
    BroadcastOperator,
    Context,
    Count,
    CountWindow,
    Global,
    KeyedStream,
    Operator,
    Pipeline,
    Session,
    Sliding,
    Stream,
    Tumbling,
    every_s,
)
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import At, run

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "operators.md").read_text()
EVERYTHING = "".join(
    path.read_text() for path in (DOCS / "operators.md", DOCS / "sinks.md", *sorted((DOCS / "guide").glob("*.md")))
)

Build = Callable[[Stream[Any]], Stream[Any]]


class Same(Operator):
    """Gives each record on."""

    def process(self, record: Any, ctx: Any) -> Any:
        return [record]


class AfterBroadcast(BroadcastOperator):
    """Emits each record, once it has received a broadcast element."""

    def process(self, record: Any, ctx: Any) -> Any:
        return [record, dict(ctx.broadcast)]

    def process_broadcast(self, record: Any, ctx: Any) -> None:
        ctx.broadcast[record["k"]] = record["at"]


def timed(stream: Stream[Any]) -> Stream[Any]:
    return stream.watermarks("time", lambda r: r["at"], out_of_order_s=1)


def keyed(stream: Stream[Any]) -> KeyedStream[Any, Any]:
    return stream.key_by(lambda r: r["k"])


def joined(stream: Stream[Any]) -> Stream[Any]:
    early = timed(stream)
    return keyed(early).join("op", keyed(early), within=(-1, 1))


def window_joined(stream: Stream[Any]) -> Stream[Any]:
    early = timed(stream)
    return keyed(early).window_join("op", keyed(early), Tumbling(2))


def grouped(stream: Stream[Any]) -> Any:
    return keyed(stream).table("t").group_by("g", lambda k, v: v["at"] % 3).aggregate("op", Count())


BUILDS: tuple[tuple[str, Build], ...] = (
    (".map(", lambda s: s.map("op", lambda r: r)),
    (".filter(", lambda s: s.filter("op", lambda r: True)),
    (".flat_map(", lambda s: s.flat_map("op", lambda r: [r, r])),
    (".process(", lambda s: keyed(s).process("op", Same())),
    (".reduce(", lambda s: keyed(s).reduce("op", lambda a, r: a + r["at"], initial=0)),
    (".count(", lambda s: keyed(s).count("op")),
    (".union(", lambda s: s.union(s.filter("again", lambda r: True)).map("op", lambda r: r)),
    (".watermarks(", timed),
    (".watermarks` with `idle_after_s`", lambda s: s.watermarks("time", lambda r: r["at"], idle_after_s=0.5)),
    (".window(", lambda s: keyed(timed(s)).window("op", Session(1.5), Count())),
    (".window(", lambda s: keyed(s).window("op", CountWindow(2), Count())),
    (".window` with `Tumbling` or", lambda s: keyed(s).window("op", Tumbling(2, clock="processing"), Count())),
    (".window` with `Tumbling` or", lambda s: keyed(s).window("op", Sliding(4, 2, clock="processing"), Count())),
    (".window` with `Session`", lambda s: keyed(s).window("op", Session(1.5, clock="processing"), Count())),
    (".window` with `Session`", lambda s: keyed(s).window("op", Global(), Count(), trigger=every_s(3, "processing"))),
    (".join(", joined),
    (".window_join(", window_joined),
    (".join_table(", lambda s: keyed(s).join_table("op", keyed(s).table("t"), how="left", wait=True)),
    (".table(", lambda s: keyed(s).table("op").revisions("rows")),
    (".window_table(", lambda s: keyed(timed(s)).window_table("op", Tumbling(2), Count()).revisions("rows")),
    ("table.filter(", lambda s: keyed(s).table("t").filter("op", lambda k, v: True).to_stream("rows")),
    ("table.group_by(", lambda s: grouped(s).revisions("rows")),
    ("table.join(", lambda s: keyed(s).table("t").join("op", keyed(s).table("u")).revisions("rows")),
    ("table.suppress(", lambda s: keyed(timed(s)).table("t").suppress("op", after_s=2).revisions("rows")),
    (".broadcast(", lambda s: s.broadcast("op", s, AfterBroadcast())),
    (".process(", lambda s: timed(s).process("op", Same(), delivery="speculative").revisions("rows")),
    (".call(", lambda s: s.call("op", lambda record, key: record["at"])),
)
"""The beginning of the first cell of a row of the table, and a pipeline for that row."""


def rows() -> list[list[str]]:
    table = PAGE[PAGE.index("## Every operator") : PAGE.index("**order**")]
    cells = [re.split(r" ?\| ?", line.strip("|")) for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in cells[2:]]


@pytest.mark.parametrize("call, build", BUILDS)
def test_an_operator_logs_what_the_table_says(call: str, build: Build) -> None:
    (row,) = [row for row in rows() if row[0].startswith(f"`{call}")]
    pipeline = Pipeline("logs")
    source: Stream[Any] = pipeline.source("in", GeneratedSource(lambda p, i: {}, count=0))
    build(source).sink("out", JsonLinesSink("."))
    records = [At(at, {"k": at % 2, "at": at}) for at in range(8)]
    result = run(pipeline, {"in": records}, checkpoint_every=0, seed=1)
    logged = {kind for kind, size in result.determinant_bytes.items() if size and kind != "order"}
    documented = set(re.findall(r"`(\w+)`", row[2]))
    if call in (".process(", ".broadcast("):
        assert row[2] == "every answer of `ctx`" and not logged
    else:
        assert logged == documented, row
    assert result["out"]


def test_a_single_element_costs_one_byte_of_order() -> None:
    pipeline = Pipeline("bytes")
    pipeline.source("in", GeneratedSource(lambda p, i: i, count=20)).sink("out", JsonLinesSink("."))
    result = run(pipeline, checkpoint_every=0)
    assert 0.9 < result.determinant_bytes["order"] / sum(result.elements.values()) < 1.5


NAMES = sorted({*operators.__all__, *operators.sources.__all__, *operators.sinks.__all__, *operators.testing.__all__})


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", EVERYTHING), f"{name} is neither in operators.md or sinks.md nor in a guide"


@pytest.mark.parametrize("kind", [KeyedStream, Context, Pipeline])
def test_every_public_method_is_documented(kind: type) -> None:
    public = [name for name in dir(kind) if not name.startswith("_") and name not in INNER]
    missing = [name for name in public if not re.search(rf"\b{name}\b", EVERYTHING)]
    assert not missing, missing


def test_the_reference_has_each_operator_once() -> None:
    listed = re.findall(r"^#### `(?:Keyed)?Stream\.(\w+)`$", (DOCS / "reference" / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(name for name in dir(KeyedStream) if not name.startswith("_"))


INNER = ("begin", "end", "check", "nodes", "sources", "made_by", "where", "pipeline", "now_ns")
"""Public names that are absent from the page: a chain uses them on its context, or a plan on its pipeline."""
