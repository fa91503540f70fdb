"""`delivery="speculative"`: records as they come, and revisions whose sum is the result in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PipelineError
from causal.ports import Chain
from causal.records.batch import RECORDS, decode_records, watermark
from operators import Operator, Pipeline
from operators.engine.plan import plan
from operators.kinds.windows.aggregates import Count
from operators.testing import run
from tests.unit.operators.scene import (
    NoSink,
    Services,
    chain_of,
    config,
    first_field,
    parts_of,
    records_chunk,
    records_in,
    source,
)

S = 1_000_000_000


def second(record: Any) -> Any:
    return record[1]


class Concatenate(Operator):
    """The record before, of the same key, and this one; a `!` fails, a `-` gives nothing, a `+` gives both apart."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        letter = record[2]
        if letter == "!" and ctx.state.get("last") == "!":
            raise ValueError("twice")
        if letter == "+":
            yield ctx.state.get("last", "")
        if letter != "-":
            yield ctx.state.get("last", "") + letter
        ctx.state["last"] = letter


def chain(operator: Operator | None = None, delivery: str = "speculative", **options: Any) -> Chain:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2), parallelism=2).watermarks("time", second).key_by(first_field)
    output: Any = stream.process("o", operator or Concatenate(), 1, delivery)
    output = output.revisions("rows") if delivery == "speculative" else output.map("rows", lambda row: row)
    output.sink("out", NoSink())
    return chain_of(plan(pipeline, config(**options)), "rows/0")


def deliver(chain: Chain, input: int, first: int, records: Sequence[Any], mark: float | None = None) -> list[Any]:
    chunks = [records_chunk(records)] if records else []
    if mark is not None:
        chunks.append(watermark(round(mark * S)))
    return records_in(chain.deliver(input, chunks, first, Services()))


def applied(revisions: Sequence[Any], rows: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the rows that the revisions add up to; each must say what was there."""
    standing = {} if rows is None else rows
    for place, old, new in revisions:
        assert standing.get(place) == old, f"{place} was {standing.get(place)!r}, it is said to have been {old!r}"
        assert old != new
        if new is None:
            del standing[place]
        else:
            standing[place] = new
    return standing


def test_what_comes_in_order_goes_on_at_once_and_what_is_older_revises() -> None:
    running = chain()
    assert deliver(running, 0, 0, [("k", 1, "a"), ("k", 5, "c")]) == [
        ((1.0, 0, 0, 0, 0), None, "a"),
        ((5.0, 0, 0, 1, 0), None, "ac"),
    ]
    assert deliver(running, 1, 0, [("k", 3, "b"), ("other", 2, "x")]) == [
        ((3.0, 0, 1, 0, 0), None, "ab"),
        ((5.0, 0, 0, 1, 0), "ac", "bc"),
        ((2.0, 0, 1, 1, 0), None, "x"),
    ]
    assert running.counts() == {"o": {"revised": 1}}


def test_one_that_gives_more_or_less_than_before_is_told_by_its_outputs() -> None:
    running = chain()
    rows = applied(deliver(running, 0, 0, [("k", 5, "+"), ("k", 7, "-")]))
    assert rows == {(5.0, 0, 0, 0, 0): "", (5.0, 0, 0, 0, 1): "+"}
    rows = applied(deliver(running, 1, 0, [("k", 1, "a")]), rows)
    assert rows[5.0, 0, 0, 0, 0] == "a" and rows[5.0, 0, 0, 0, 1] == "a+"


def test_what_the_watermark_has_passed_is_late_and_its_past_forgotten() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second)
    stream.process("o", Concatenate(), 1, delivery="speculative").revisions("rows").sink("out", NoSink())
    pipeline.stream("o").side("late").sink("late-out", NoSink())
    running = chain_of(plan(pipeline, config()), "rows/0")
    deliver(running, 0, 0, [("k", 1, "a"), ("k", 5, "b")], 5)
    assert list(running.inspect("o", None)["o:since"]) == [
        [(5 * S, 0, 1, 0), [("k", 5, "b"), {"last": "a"}, ["ab"], False]]
    ]
    outputs = running.deliver(0, [records_chunk([("k", 4, "late"), ("k", 5, "c")])], 3, Services())
    batches = [decode_records(chunk.body) for _, chunk in outputs if chunk.kind == RECORDS]
    assert batches == [[((5.0, 0, 0, 4, 0), None, "bc")], [("k", 4, "late")]]
    assert running.counts() == {"o": {"late": 1}}


records = st.lists(
    st.tuples(st.sampled_from("xy"), st.integers(0, 9), st.sampled_from("ab-+!")), min_size=1, max_size=14, unique=True
)


@given(records, st.lists(st.booleans(), min_size=14, max_size=14), st.integers(0, 14), st.booleans())
def test_the_sum_of_the_revisions_is_the_result_in_order(
    elements: list[Any], inputs: list[bool], restore_at: int, full: bool
) -> None:
    options: dict[str, Any] = {"on_error": "dead-letter"}
    outcomes = []
    for delivery in ("speculative", "ordered"):
        running, rows, places = chain(delivery=delivery, **options), list[Any](), [0, 0]
        for number, record in enumerate(elements):
            if number == restore_at:
                parts = parts_of(running, full)
                running = chain(delivery=delivery, **options)
                running.restore(parts)
            input = int(inputs[number])
            outputs = running.deliver(input, [records_chunk([record])], places[input], Services())
            rows += [row for ordinal, chunk in outputs if ordinal == 0 for row in decode_records(chunk.body)]
            places[input] += 1
        for input in (0, 1):
            outputs = running.ended(input, Services())
            rows += [row for ordinal, chunk in outputs if ordinal == 0 for row in decode_records(chunk.body)]
        outcomes.append(rows)
    stands = applied(outcomes[0])
    assert [stands[place] for place in sorted(stands)] == outcomes[1]


def test_a_record_that_fails_again_is_one_dead_letter() -> None:
    running = chain(on_error="dead-letter")
    outputs = running.deliver(0, [records_chunk([("k", 4, "!"), ("k", 6, "!")])], 0, Services())
    letters = [row for ordinal, chunk in outputs if ordinal == 1 for row in decode_records(chunk.body)]
    assert [(letter["operator"], letter["key"], letter["record"]) for letter in letters] == [("o", "k", ("k", 6, "!"))]
    outputs = running.deliver(1, [records_chunk([("k", 1, "a")])], 0, Services())
    assert all(ordinal == 0 for ordinal, _ in outputs)
    outputs = running.deliver(1, [records_chunk([("k", 5, "b")])], 1, Services())
    assert applied(records_in(outputs)) == {(5.0, 0, 1, 1, 0): "!b", (6.0, 0, 0, 1, 0): "b!"}


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda ctx: ctx.now(), "the clock"),
        (lambda ctx: ctx.random.random(), "chance"),
        (lambda ctx: ctx.call(int), "an answer of the outside"),
        (lambda ctx: ctx.aside("x", 1), "cannot put records aside"),
    ],
)
def test_what_would_be_asked_twice_stops_the_job(ask: Callable[[Any], Any], what: str) -> None:
    class Asks(Operator):
        def process(self, record: Any, ctx: Any) -> None:
            ask(ctx)

    with pytest.raises(OperatorFailed, match=f"'o' is speculative: .*{what}.*use delivery=\"ordered\""):
        deliver(chain(Asks(), on_error="dead-letter"), 0, 0, [("k", 1, "a")])


def test_an_output_that_cannot_be_carried_and_a_state_that_cannot_be_kept_are_dead_letters() -> None:
    class Sets(Operator):
        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record[2] == "state":
                ctx.state["seen"] = {1}
            yield (record[2], {1}) if record[2] == "output" else record[2]

    running = chain(Sets(), on_error="dead-letter")
    outputs = running.deliver(0, [records_chunk([("k", 1, "output"), ("k", 2, "b")])], 0, Services())
    letters = [row["record"] for ordinal, chunk in outputs if ordinal == 1 for row in decode_records(chunk.body)]
    assert letters == [("k", 1, "output")]
    assert [new for ordinal, c in outputs if ordinal == 0 for _, _, new in decode_records(c.body)] == ["b"]
    parts_of(running)
    outputs = running.deliver(0, [records_chunk([("k", 3, "state")])], 2, Services())
    letters = [row for ordinal, chunk in outputs if ordinal == 1 for row in decode_records(chunk.body)]
    assert [row["record"] for row in letters] == [("k", 3, "state")]
    assert "ctx.state['seen'] cannot be stored: a set" in letters[0]["error"]
    parts_of(running)


class Ringing(Operator):
    def process(self, record: Any, ctx: Any) -> None: ...

    def on_timer(self, name: str, ctx: Any) -> None: ...


def test_an_operator_with_timers_is_refused_when_it_is_built() -> None:
    with pytest.raises(
        PipelineError, match="'o' is speculative: it may process a record twice, so it cannot have on_timer"
    ):
        chain(Ringing())


# Table II of the FlameStream paper, see test_order.


class Two(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.state.get("last", "") + record[0]
        ctx.state["last"] = record[0]


def test_a_table_that_counts_them_retracts_what_no_longer_holds() -> None:
    """Pairs are counted by their first letter: a count is retracted where a pair has changed."""
    pipeline = Pipeline("counted")
    left = pipeline.source("left", source()).watermarks("left-time", second)
    right = pipeline.source("right", source()).watermarks("right-time", second)
    pairs = left.union(right).process("concat", Two(), 1, delivery="speculative")
    pairs.group_by("first", lambda place, pair: pair[0]).aggregate("n", Count()).revisions("rows").sink("out", NoSink())
    inputs = {"left": [("a", 1), ("b", 3), ("a", 5), ("b", 7)], "right": [("b", 2), ("a", 4), ("a", 6)]}
    for seed in range(6):
        result = run(pipeline, inputs, crash={"first/0": 3, "rows/0": 2} if seed % 2 else {}, seed=seed)
        assert applied(result["out"]) == {"a": 5, "b": 2}, "a, ab, bb, ba, aa, aa, ab"
