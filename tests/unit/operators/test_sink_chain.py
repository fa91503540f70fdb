"""A record that a sink cannot encode stops the job with one line, or becomes a dead letter once, whatever dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from causal.errors import OperatorFailed
from causal.records.batch import RECORDS, ROWS
from causal.records.vectors import Vectors
from operators import Pipeline
from operators.engine.plan import plan
from operators.sinks.contract.sink import Sink
from operators.stage.failures import Failures
from operators.testing import run
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, planned, records_in, source

NO_TEXT = {"i": 1, "odd": {(1, 2): 3}}
RECORDS_IN = [{"i": 0}, NO_TEXT, {"i": 2}, {"i": 3, "odd": {(1,): 2}}]


class Words(NoSink):
    """Encodes in its own way, and counts itself what it is given."""

    def encode(self, records: Sequence[Any]) -> bytes:
        return b"".join(record["word"].encode() + b"\n" for record in records) + b"%d\n" % len(records)


def letters_of(sink: Sink, records: Any) -> tuple[list[tuple[int, int, bytes]], list[dict[str, Any]]]:
    """Return (ordinal, count, rows) of what goes to the store, and the dead letters."""
    pipeline = Pipeline("test")
    pipeline.source("in", source()).sink("out", sink)
    chain = chain_of(plan(pipeline, config(on_error="dead-letter")), "out/0")
    chunks = listed(records)
    if isinstance(records, Vectors):
        chunks[0].body = records
    outputs = chain.deliver(0, chunks, 10, Services())
    assert [ordinal for ordinal, chunk in outputs if chunk.kind == RECORDS] in ([], [1])
    rows = [(ordinal, chunk.count, bytes(chunk.body)) for ordinal, chunk in outputs if chunk.kind == ROWS]
    return rows, records_in(outputs)


WORDS = [{"word": "a"}, {"word": None}, {"word": "b"}]


@pytest.mark.parametrize(
    ("sink", "records", "rows", "set_aside"),
    [
        (NoSink(), RECORDS_IN, [(0, 2, b'{"i": 0}\n{"i": 2}\n')], [(11, str(NO_TEXT)), (13, str(RECORDS_IN[3]))]),
        (NoSink(), [NO_TEXT, NO_TEXT], [], [(10, str(NO_TEXT)), (11, str(NO_TEXT))]),
        (Words(), WORDS, [(0, 2, b"a\nb\n2\n")], [(11, WORDS[1])]),
        (Words(), Vectors.of({"word": ["a", None, "b"]}), [(0, 2, b"a\nb\n2\n")], [(11, WORDS[1])]),
    ],
    ids=["some", "an event without any row", "an encoding of its own is given the others together", "vectors"],
)
def test_the_others_have_rows_and_it_has_a_letter(sink: Sink, records: Any, rows: Any, set_aside: list[Any]) -> None:
    written, letters = letters_of(sink, records)
    assert written == rows
    assert [(each["operator"], each["position"], each["record"]) for each in letters] == [
        ("out", *each) for each in set_aside
    ]
    if isinstance(sink, Words):
        assert "AttributeError" in letters[0]["error"] and "test_sink_chain.py" in letters[0]["where"]
    else:
        assert (
            letters[0]["error"] == "NotCarried: a key that is a tuple cannot be written as JSON; convert it to a string"
        )


@pytest.mark.parametrize("records", [RECORDS_IN, [NO_TEXT]])
def test_without_dead_letters_the_line_names_the_first(records: list[Any]) -> None:
    chain = chain_of(planned(lambda stream: stream), "out/0")
    with pytest.raises(OperatorFailed) as caught:
        chain.deliver(0, listed(records), 10, Services())
    line = str(caught.value)
    assert f"operator 'out', position {10 + records.index(NO_TEXT)} of " in line and "(1, 2): 3" in line
    assert len(line.splitlines()) == 1


def test_a_sink_that_cannot_encode_what_it_can_one_by_one_stops_the_job() -> None:
    class Alone(NoSink):
        def encode(self, records: Sequence[Any]) -> bytes:
            if len(records) > 1:
                raise ValueError("one at a time")
            return super().encode(records)

    with pytest.raises(OperatorFailed, match=r"positions 10 to 12 of .*ValueError: one at a time"):
        letters_of(Alone(), [1, 2, 3])


@pytest.mark.parametrize("seed", range(6))
def test_rows_and_letters_are_there_once_when_the_task_of_the_sink_dies(seed: int) -> None:
    pipeline = Pipeline("test")
    both = pipeline.source("in", source()).union(pipeline.source("more", source()))
    both.sink("out", NoSink())
    records = [{"i": n, "odd": {(n,): 1} if n % 3 == 0 else {}} for n in range(40)]
    inputs = {"in": records[:20], "more": records[20:]}
    deaths: dict[str, int | Sequence[int]] = {"out/0": [4, 9, 17], "dead-letters/0": 2}
    result = run(pipeline, inputs, crash=deaths, seed=seed, on_error="dead-letter", checkpoint_every=7)
    assert sorted(row["i"] for row in result["out"]) == [n for n in range(40) if n % 3]
    texts = sorted(letter["record"] for letter in result["dead-letters"])
    assert texts == sorted(str(record) for record in records if record["odd"])


def test_what_dead_letters_have_not_helped_does_not_advise_them() -> None:
    for letters, advised in [(None, True), (NoSink(), False)]:
        with pytest.raises(OperatorFailed) as stopped:
            Failures(letters, 1 << 20).stop("op", None, ValueError("wrong"))
        assert "correct the pipeline and resume with --code new" in str(stopped.value)
        assert ("--on-error dead-letter" in str(stopped.value)) == advised
