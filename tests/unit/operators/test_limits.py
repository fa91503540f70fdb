"""Records, keys, state and names exactly at their bounds: taken there, refused in one line above."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.channels import output_queue
from causal.config import RECORD_BYTES_MAX, JobConfig
from causal.errors import OperatorFailed, PipelineError
from causal.records.batch import RECORDS, decode_records, encode_records
from causal.records.values import NESTING_MAX, TUPLE_DEPTH_MAX, NotCarried, encode
from operators import Operator, Pipeline
from operators.builder.pipeline import Stream
from operators.graph import NAME_CHARACTERS_MAX
from operators.records.reuse import refuse_shared_buffers
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.state.keyed_tables import KeyedTable
from tests.unit.operators.scene import Services, chain_of, listed, planned, records_chunk

RECORDS_IN = [(1, "a"), (0, "b"), (2, "c")]
BYTES_MAX = 4000
IN_A_BATCH = 1
"""Lists around a record that travels: that of its batch."""


def nested(levels: int, inner: Any = 1, kind: Any = list) -> Any:
    for _ in range(levels):
        inner = kind([inner])
    return inner


tuples = partial(nested, kind=tuple)


def of_bytes(size: int) -> Any:
    """Return a text that takes that many bytes encoded."""
    text = "x" * (size - 3)
    assert len(encode(text)) == size
    return text


BOUNDS: dict[str, tuple[Callable[[int], Any], int, str]] = {
    "bytes of a record": (of_bytes, BYTES_MAX, f"it has {BYTES_MAX + 1} bytes, but record_bytes_max is {BYTES_MAX}"),
    "lists within lists": (nested, NESTING_MAX - IN_A_BATCH, "nested too deeply"),
    "lists with bytes": (lambda n: nested(n, b"\x01"), NESTING_MAX - IN_A_BATCH, "nested too deeply"),
    "lists in a tuple": (lambda n: (nested(n),), NESTING_MAX - 1, "nested too deeply"),
    "tuples within tuples": (tuples, TUPLE_DEPTH_MAX, f"tuples nested more than {TUPLE_DEPTH_MAX} deep"),
}


def delivered(build: Callable[[Any], Any], records: list[Any], **settings: Any) -> dict[int, list[Any]]:
    """Return the records that operator x sends, by output."""
    chunks = chain_of(planned(build, **settings), "x/0").deliver(0, listed(records), 100, Services())
    return {ordinal: decode_records(chunk.body) for ordinal, chunk in chunks if chunk.kind == RECORDS}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_record_at_its_bound_travels_and_one_above_is_named(name: str) -> None:
    make, bound, words = BOUNDS[name]

    def sent(size: int, on_error: str = "stop") -> dict[int, list[Any]]:
        record = make(size)
        build = lambda s: s.map("x", lambda r: r if r[0] else record)  # noqa: E731
        return delivered(build, RECORDS_IN, record_bytes_max=BYTES_MAX, on_error=on_error)

    for size in (bound - 1, bound):
        [records] = sent(size).values()
        assert [encode(each) for each in records] == [encode((1, "a")), encode(make(size)), encode((2, "c"))]
    with pytest.raises(OperatorFailed) as caught:
        sent(bound + 1)
    message = str(caught.value)
    assert message.startswith("operator 'x', position 101 of partition 0 of source 'in'") and words in message
    assert "\n" not in message and len(message) < 2000
    outputs = sent(bound + 1, "dead-letter")
    assert outputs[0] == [(1, "a"), (2, "c")]
    [letter] = outputs[1]
    assert (letter["operator"], letter["position"]) == ("x", 101) and words in letter["error"]


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_carried_does_not_depend_on_the_rest_of_the_batch(count: int) -> None:
    encode_records([tuples(TUPLE_DEPTH_MAX)] * count)
    with pytest.raises(NotCarried, match="tuples nested more than"):
        encode_records([tuples(TUPLE_DEPTH_MAX + 1)] * count)


@pytest.mark.parametrize("record", [nested(NESTING_MAX - 1), nested(NESTING_MAX - 1, b"\x01"), nested(500, {"a": 0.5})])
def test_a_record_on_which_code_raises_is_a_dead_letter_however_it_is_nested(record: Any) -> None:
    chain = chain_of(planned(lambda s: s.map("x", lambda r: r[0] / 0), on_error="dead-letter"), "x/0")
    [(_, chunk)] = chain.deliver(0, [records_chunk([record])], 7, Services())
    [letter] = decode_records(chunk.body)
    assert letter["position"] == 7 and "TypeError" in letter["error"]
    assert JsonLinesSink(".").encode([letter]).count(b"\n") == 1


def within_itself(kind: str, at: str, wrap: int) -> Any:
    """Return a list or dict that holds itself once or twice, next to or after scalars, in this many tuples."""
    inner: Any = [] if kind == "list" else {}
    own = inner
    for _ in range(wrap):
        own = (own,)
    items = {"alone": [own], "twice": [own, own], "behind": [1, b"x", own], "before": [own, {2: 3.5}]}[at]
    if kind == "list":
        inner += items
    else:
        inner.update(zip("abc", items, strict=False))
    return inner


endless = st.builds(
    within_itself,
    st.sampled_from(["list", "dict"]),
    st.sampled_from(["alone", "twice", "behind", "before"]),
    st.integers(0, 3),
)


@given(st.lists(endless, min_size=1, max_size=5), st.sampled_from(["map", "process"]))
def test_a_record_that_holds_itself_is_refused_alone_and_among_many(records: list[Any], kind: str) -> None:
    for record in records:
        with pytest.raises(NotCarried):
            encode(record)
    with pytest.raises(NotCarried):
        encode(records)
    refuse_shared_buffers(records, "x")

    class Lends(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            return [lent(record)]

    def lent(number: int) -> Any:
        return records[number] if number < len(records) else number

    outputs = delivered(
        lambda s: s.map("x", lent) if kind == "map" else s.process("x", Lends()), [*range(len(records)), 1000],
        on_error="dead-letter",
    )  # fmt: skip
    assert outputs[0] == [1000]
    assert [letter["position"] for letter in outputs[1]] == list(range(100, 100 + len(records)))


def test_lists_that_are_in_many_places_are_looked_into_once() -> None:
    record: Any = [bytearray(1)]
    for _ in range(100):
        record = [record, record]
    with pytest.raises(TypeError, match="the same bytearray in two records"):
        refuse_shared_buffers([record, {"a": record}], "x")


class Gives(Operator):
    """One by one, so that each is copied."""

    def process(self, record: Any, ctx: Any) -> Any:
        yield ctx.state.setdefault("kept", nested(NESTING_MAX - IN_A_BATCH))


@pytest.mark.parametrize(
    "build",
    [lambda s: s.map("x", lambda r: nested(NESTING_MAX - IN_A_BATCH)), lambda s: s.process("x", Gives())],
    ids=["map", "process"],
)
def test_records_at_the_bound_are_looked_into_and_copied(build: Callable[[Stream[Any]], Stream[Any]]) -> None:
    [records] = delivered(build, RECORDS_IN).values()
    assert [encode(each) for each in records] == [encode(nested(NESTING_MAX - IN_A_BATCH))] * 3


@pytest.mark.parametrize("inner", [1, float("nan"), b"\x01"], ids=str)
def test_whatever_travels_can_be_written_as_json(inner: Any) -> None:
    before = sys.getrecursionlimit()
    levels = NESTING_MAX - IN_A_BATCH
    [record] = decode_records(encode_records([nested(levels, inner)]))
    text = JsonLinesSink(".").encode([record]).decode()
    assert text.startswith("[" * levels) and text.endswith("]" * levels + "\n")
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("over", [-1, 0, 1, 2])
def test_state_at_its_bound_is_kept_and_above_it_the_key_is_named(over: int) -> None:
    around = 2  # the lists of an increment and of its values
    job = KeyedTable("t", "op", 1, {"bad": nested(NESTING_MAX - around + over)}).snapshot(full=True)
    if over <= 0:
        job.step(1)
        assert job.fragments
        return
    with pytest.raises(OperatorFailed, match="operator 'op', key 'bad': its state cannot be checkpointed: .*nested"):
        job.step(1) and job.fragments


def test_a_record_that_is_allowed_fits_into_what_a_channel_carries() -> None:
    def configured(size: int) -> JobConfig:
        return JobConfig("run", "name", "file.py", record_bytes_max=size)

    record = bytes(configured(RECORD_BYTES_MAX).record_bytes_max - 5)
    assert len(encode(record)) == RECORD_BYTES_MAX
    assert len(encode_records([record])) <= output_queue.CHUNK_BYTES_MAX
    with pytest.raises(PipelineError, match=f"record_bytes_max is {RECORD_BYTES_MAX + 1}; it must be at most"):
        configured(RECORD_BYTES_MAX + 1)


def test_names_of_operators_and_pipelines_make_names_of_files() -> None:
    def built(name: str) -> None:
        source = GeneratedSource(lambda p, i: i, count=1)
        Pipeline(name).source(name, source).sink(name + "x", JsonLinesSink("."))

    built("n" * (NAME_CHARACTERS_MAX - 1))
    with pytest.raises(PipelineError, match=f"test_limits.py.* has {NAME_CHARACTERS_MAX + 1} characters"):
        built("n" * NAME_CHARACTERS_MAX)
    with pytest.raises(PipelineError, match="names a pipeline"):
        Pipeline("n" * (NAME_CHARACTERS_MAX + 1))
