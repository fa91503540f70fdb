"""Operators that say that their records commute: what is spared, and what is refused because it is not so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError, ReplayDivergence
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run, world
from operators.testing.running import TrialResult
from tests.members import examples, sample


class Totals(Operator):
    """A sum per key, which it gives when it is asked, and at the end."""

    commutes = True

    def process(self, record: int, ctx: Any) -> Iterator[Any]:
        if record % 50 == 49:
            yield (ctx.key, "so far", ctx.state.get("n", 0))
        ctx.state["n"] = ctx.state.get("n", 0) + record

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, "total", ctx.state["n"])


class InOrder(Totals):
    commutes = False


class Latest(Totals):
    """Keeps what came last, which is not the same in any order."""

    def process(self, record: int, ctx: Any) -> Iterator[Any]:
        if record % 10 == 9:
            yield (ctx.key, "latest", ctx.state.get("n"), ctx.state.get("before"))
            ctx.state["before"] = ctx.state.get("n")
        ctx.state["n"] = record


class Floats(Totals):
    """Adds floats, which depends on the order in the last digits."""

    def process(self, record: int, ctx: Any) -> None:  # type: ignore[override]
        ctx.state["n"] = ctx.state.get("n", 0.0) + record / 10


class Kinds(Totals):
    """Counts by kind, in a dict that keeps the order of insertion."""

    def process(self, record: int, ctx: Any) -> None:  # type: ignore[override]
        kinds = ctx.state.setdefault("n", {})
        kinds[str(record)] = kinds.get(str(record), 0) + 1


class Drawn(Totals):
    """Asks for what is logged: that has its place among the others, so nothing changes places with it."""

    def process(self, record: int, ctx: Any) -> None:  # type: ignore[override]
        ctx.state["n"] = ctx.state.get("n", 0) + ctx.call(lambda: 1)


def built(operator: Operator, inputs: int = 4, tasks: int = 1) -> Pipeline:
    pipeline = Pipeline("totals")
    streams = [pipeline.source(f"from-{n}", GeneratedSource(lambda p, i: i, count=0)) for n in range(inputs)]
    numbers = streams[0].union(*streams[1:])
    numbers.key_by(lambda n: n % 3).process("totals", operator, parallelism=tasks).sink("out", SqliteSink("out.db"))
    return pipeline


def ran(operator: Operator, count: int = 200, **options: Any) -> TrialResult:
    inputs = {f"from-{n}": list(range(n, count, 4)) for n in range(4)}
    return run(built(operator), inputs, **options)


def order_bytes(result: TrialResult) -> int:
    return result.determinant_bytes["order"]


def totals(result: TrialResult) -> list[Any]:
    return sorted(row for row in result["out"] if row[1] == "total")


def test_orders_between_two_outputs_are_one_entry_per_input() -> None:
    spared, whole = (ran(each, 400, checkpoint_every=0) for each in (Totals(), InOrder()))
    assert totals(spared) == totals(whole)
    of_sources = 400  # an entry of one byte for each record that a source reads
    assert order_bytes(whole) > 2 * of_sources
    assert order_bytes(spared) < of_sources + (order_bytes(whole) - of_sources) / 2


@examples(divided_by=2)
@given(
    seed=st.integers(0, 10_000),
    crashes=st.lists(st.integers(1, 60), max_size=4, unique=True).map(sorted),
    every=st.sampled_from((0, 7, 40, None)),
    batch=st.integers(1, 5),
)
def test_sums_are_right_whatever_dies(seed: int, crashes: list[int], every: int | None, batch: int) -> None:
    result = ran(
        Totals(), 120, seed=seed, crash={"totals/0": crashes} if crashes else {}, checkpoint_every=every, batch=batch
    )
    sums = [sum(n for n in range(120) if n % 3 == key) for key in range(3)]
    assert totals(result) == [(key, "total", total) for key, total in enumerate(sums)]
    assert len(result["out"]) == 3 + 2


@pytest.mark.parametrize("operator", [Latest(), Floats(), Kinds()])
def test_what_does_not_commute_is_refused_with_the_key_and_both_states(operator: Operator) -> None:
    with pytest.raises(
        PipelineError, match="'totals' declares commutes = True.* in the order of arrival, and .*commutes"
    ):
        for seed in range(5):
            ran(operator, seed=seed, checkpoint_every=0)


def test_the_refusal_names_the_line_of_the_operator() -> None:
    with pytest.raises(PipelineError, match=r"test_commutes\.py:\d+"):
        ran(Latest(), checkpoint_every=0)


def test_what_asks_for_what_is_logged_is_logged_in_its_place() -> None:
    result = ran(Drawn(), crash={"totals/0": [20, 40]})
    assert sum(row[2] for row in totals(result)) == 200


def test_an_operator_with_timers_cannot_commute() -> None:
    class Timed(Totals):
        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.state["n"] = 0

    with pytest.raises(PipelineError, match="commutes = True and on_timer"):
        built(Timed())


@pytest.mark.parametrize("seed", sample(range(12), 4))
def test_a_wrong_declaration_never_leaves_rows_that_contradict_each_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the kit is off.  Each row says what the one before it was, so a replay in another order shows."""
    monkeypatch.setattr(world, "ReorderedChain", lambda chain, *others: chain)
    try:
        result = ran(Latest(), 300, seed=seed, crash={"totals/0": [30, 60, 90, 120, 150]}, checkpoint_every=35)
    except ReplayDivergence as refused:
        assert "totals" in str(refused)
        return
    for key in range(3):
        rows = [row for row in result["out"] if row[0] == key and row[1] == "latest"]
        assert all(after[3] == before[2] for before, after in zip(rows, rows[1:], strict=False))


class Sizes(Totals):
    """Adds up the lengths of records."""

    def process(self, record: str, ctx: Any) -> None:  # type: ignore[override]
        ctx.state["n"] = ctx.state.get("n", 0) + len(record)


@pytest.mark.parametrize("seed", sample(range(4), 2))
def test_a_graph_that_forks_and_joins_does_not_stand_still_in_a_replay(seed: int) -> None:
    """One branch has little under way while the replay takes all open records of the other."""
    pipeline = Pipeline("fork")
    texts = pipeline.source("texts", GeneratedSource(lambda p, i: "", count=0))
    long = texts.key_by(len).process("long", Passing())
    short = texts.key_by(lambda text: 0).process("short", Passing())
    both = long.union(short, texts).key_by(lambda text: 0)
    both.process("sizes", Sizes(), parallelism=1).sink("out", SqliteSink("out.db"))
    lines = ["x" * (500 + 37 * (n % 40)) for n in range(400)]
    result = run(
        pipeline, {"texts": lines}, seed=seed, crash={"sizes/0": [150, 400, 900]}, checkpoint_every=0,
        channel_window_bytes=1 << 16,
    )  # fmt: skip
    assert result["out"] == [(0, "total", 3 * sum(map(len, lines)))]
    assert result.recoveries == 3


class Passing(Operator):
    """Passes each record on."""

    def process(self, record: str, ctx: Any) -> Iterator[str]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield record


def test_what_is_no_yes_or_no_is_refused() -> None:
    class Asked(Totals):
        commutes = "yes"  # type: ignore[assignment]

    with pytest.raises(PipelineError, match="commutes = 'yes'; use True or False"):
        built(Asked())
