"""A record on which user code raises stops the job with one line, or becomes a dead letter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from causal.errors import OperatorFailed, ReplayDivergence
from causal.records.batch import RECORDS, decode_records, watermark
from operators import CountWindow, Global, Operator, Sum
from operators.builder.pipeline import Stream
from tests.unit.operators.scene import (
    Services,
    chain_of,
    first_field,
    give,
    listed,
    planned,
    ran,
    records_chunk,
    records_in,
)  # fmt: skip

RECORDS_IN = [(1, "a"), (0, "b"), (2, "c"), (0, "d")]
NAN = float("nan")


def invert(record: Any) -> Any:
    return (1 // record[0], record[1])


def ended(record: Any) -> Any:
    if record[0] == 0:
        raise StopIteration
    return (record[0], record[1])


class Invert(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield ("before", record[1], ctx.state["n"])
        yield (1 // record[0], record[1])


class Calls(Operator):
    """Gives what a function of (record, ctx) returns."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self._fn = fn

    def process(self, record: Any, ctx: Any) -> Any:
        return self._fn(record, ctx)


def replaces(record: Any, ctx: Any) -> Any:
    if record[0] == 0:
        ctx.state = {"n": 1}
    yield record


class Truth:
    def __bool__(self) -> bool:
        raise ValueError("vague")


def many(record: Any) -> Any:
    yield record
    yield invert(record)


def same(record: Any) -> Any:
    return record


KEPT, INVERTED = [(1, "a"), (2, "c")], [(1, "a"), (0, "c")]
CASES: list[tuple[Callable[[Any], Stream[Any]], str, str, list[Any]]] = [
    (lambda s: s.map("x", invert), "x", "ZeroDivisionError", INVERTED),
    (lambda s: s.map("x", ended), "x", "StopIteration", KEPT),
    (lambda s: s.filter("x", invert), "x", "ZeroDivisionError", KEPT),
    (lambda s: s.filter("x", ended), "x", "StopIteration", KEPT),
    (lambda s: s.filter("x", lambda r: Truth() if r[0] == 0 else r), "x", "ValueError: vague", KEPT),
    (lambda s: s.flat_map("x", lambda r: [invert(r)]), "x", "ZeroDivisionError", INVERTED),
    (lambda s: s.flat_map("x", lambda r: "no" if r[0] == 0 else [r]), "x", "returned a str", KEPT),
    (lambda s: s.flat_map("x", many), "x", "ZeroDivisionError", [(1, "a"), (1, "a"), (2, "c"), (0, "c")]),
    (lambda s: s.process("x", Calls(lambda r, ctx: [invert(r)])), "x", "ZeroDivisionError", INVERTED),
    (lambda s: s.process("x", Calls(lambda r, ctx: [r] if r[0] else {"a": 1})), "x", "returned a dict", KEPT),
    (lambda s: s.process("x", Calls(replaces)), "x", "ctx.state was replaced", KEPT),
    (lambda s: s.map("y", same).filter("z", lambda r: r[1] != "a").map("x", invert), "x", "Zero", [(0, "c")]),
    (lambda s: s.flat_map("z", lambda r: [r] if r[1] != "a" else None).map("x", invert), "x", "Zero", [(0, "c")]),
    (lambda s: s.process("z", Calls(lambda r, ctx: [r])).map("x", invert), "x", "Zero", INVERTED),
    (lambda s: s.map("x", lambda r: r if r[0] else UUID(int=1)), "x", "UUID cannot be encoded", KEPT),
    (lambda s: s.map("x", lambda r: r if r[0] else "long" * 1000), "x", "4003 bytes", KEPT),
    (lambda s: s.map("x", same).key_by(invert).count("n"), "key_by before n", "Zero", KEPT),
    (lambda s: s.map("x", same).key_by(lambda r: r if r[0] else NAN).count("n"), "key_by before n", "is NaN", KEPT),
    (lambda s: s.map("x", same).key_by(lambda r: r if r[0] else []).count("n"), "key_by before n",
     "unhashable type: 'list'; key by", KEPT),
]  # fmt: skip


@pytest.mark.parametrize("build", [lambda s: s.map("x", ended), lambda s: s.map("x", same).key_by(ended).count("n")])
def test_the_line_that_raised_stop_iteration_is_named(build: Callable[[Any], Stream[Any]]) -> None:
    with pytest.raises(OperatorFailed, match=rf": StopIteration at {__file__}:\d+ in ended;"):
        give(chain_of(planned(build), "x/0"), RECORDS_IN)


class Gives(Operator):
    """Gives `output` for each record, or at the end if it is `late`."""

    def __init__(self, output: Any, late: bool = False) -> None:
        self.output, self.late = output, late

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["n"] = 1
        return None if self.late else self.output

    def finish(self, ctx: Any) -> Any:
        return self.output if self.late else None


class GivesObject(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        yield object()


def objects(record: Any) -> Any:
    return object()


NOTHING = Sum[Any](ADD := lambda record: None)
OF_BUILTIN: Any = lambda s: s.map("x", math.sqrt)  # noqa: E731


@pytest.mark.parametrize(
    ("build", "what", "place"),
    [
        (lambda s: s.key_by(str).window("x", CountWindow(1), NOTHING), "x", ADD),
        (lambda s: s.map("x", objects), "x", objects),
        (lambda s: s.flat_map("x", objects), "x", objects),
        (lambda s: s.process("x", GivesObject()), "x", GivesObject.process),
        (lambda s: s.key_by(objects).count("x"), "key_by before x", objects),
        (OF_BUILTIN, "x", OF_BUILTIN),
    ],
)
def test_an_error_outside_of_user_code_names_the_place_of_the_code_that_caused_it(
    build: Any, what: str, place: Any
) -> None:
    with pytest.raises(OperatorFailed) as failure:
        ran(build, ["text"])
    assert f"operator {what!r}" in str(failure.value) and "\n" not in str(failure.value)
    assert f" (defined at {__file__}:{place.__code__.co_firstlineno}); record " in str(failure.value)


@pytest.mark.parametrize("output", [3, 0.5, True, object(), Gives(1), b"x", {"a": 1}, "x"])
@pytest.mark.parametrize(
    "build",
    [
        lambda s, output: s.process("x", Gives(output)),
        lambda s, output: s.flat_map("x", lambda record: output),
        lambda s, output: s.process("x", Gives(output, late=True)),
    ],
)
def test_what_is_no_iterable_of_records_is_named_with_the_remedy(build: Any, output: Any) -> None:
    kind = type(output).__name__
    line = f"'x' returned a {kind}, but must return an iterable of records; yield the {kind}, or return it in a list"
    with pytest.raises(OperatorFailed, match=re.escape(line)):
        ran(lambda s: build(s, output), [1])
    [letter] = ran(lambda s: build(s, output), [1], on_error="dead-letter")["dead-letters"]
    assert line in letter["error"]


@pytest.mark.parametrize(
    ("methods", "call"),
    [
        (["to_dict"], "to_dict('records')"),
        (["to_dict", "to_dicts"], "to_dicts()"),
        (["to_pylist", "to_pydict"], "to_pylist()"),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda s, frame: s.flat_map("x", lambda record: frame),
        lambda s, frame: s.process("x", Gives(frame)),
        lambda s, frame: s.process("x", Gives(frame, late=True)),
        lambda s, frame: s.window("x", CountWindow(1), lambda key, records, window: frame),
        lambda s, frame: s.window("x", Global(), lambda key, records, window: frame),
    ],
)
def test_a_data_frame_is_no_iterable_of_records_but_of_its_columns(methods: list[str], call: str, build: Any) -> None:
    """An iteration over a frame of pandas, Polars or Arrow gives its columns."""
    kind = type("Frame", (list,), {"columns": ["a", "b"], **dict.fromkeys(methods)})
    line = "'x' returned a Frame, which iterates over its columns, but must return an iterable of records; use frame."
    with pytest.raises(OperatorFailed, match=re.escape(line + call)):
        ran(lambda s: build(s, kind(["a", "b"])), [0])


class Indexed:
    def __getitem__(self, index: int) -> Any:
        return [1, 2][index]


@pytest.mark.parametrize("output", [(1, 2), range(1, 3), iter([1, 2]), Indexed(), {1: 0, 2: 0}.keys()])
def test_any_other_iterable_gives_its_records(output: Any) -> None:
    chain = chain_of(planned(lambda s: s.process("x", Gives(output))), "x/0")
    assert records_in(chain.deliver(0, listed([1]), 0, Services())) == [1, 2]


@pytest.mark.parametrize(("build", "operator", "error", "rest"), CASES)
def test_stop_names_operator_position_and_record(
    build: Callable[[Stream[Any]], Stream[Any]], operator: str, error: str, rest: list[Any]
) -> None:
    chain = chain_of(planned(build, record_bytes_max=1000), "x/0")
    with pytest.raises(OperatorFailed) as caught:
        chain.deliver(0, listed(RECORDS_IN), 100, Services())
    message = str(caught.value)
    assert message.startswith(f"operator {operator!r}")
    assert "position 101 of partition 0 of source 'in'" in message
    assert error in message
    assert "or resume with --on-error dead-letter" in message
    assert "\n" not in message and "msgpack" not in message
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(("build", "operator", "error", "rest"), CASES)
def test_dead_letter_sets_the_record_aside_and_goes_on(
    build: Callable[[Stream[Any]], Stream[Any]], operator: str, error: str, rest: list[Any]
) -> None:
    chain = chain_of(planned(build, record_bytes_max=1000, on_error="dead-letter"), "x/0")
    chunks = [records_chunk(RECORDS_IN[:1]), watermark(1), records_chunk(RECORDS_IN[1:])]
    outputs = chain.deliver(0, chunks, 100, Services())
    by_channel = {ordinal: decode_records(chunk.body) for ordinal, chunk in outputs if chunk.kind == RECORDS}
    letters = by_channel.pop(1)
    assert list(by_channel.values()) == [rest]
    fields = {"operator", "key", "position", "record", "error", "where", "traceback"}
    assert [set(letter) for letter in letters] == [fields] * 2
    assert [letter["operator"] for letter in letters] == [operator] * 2
    assert [letter["position"] for letter in letters] == [102, 104]  # the watermark has a position as well
    assert all(error in letter["error"] for letter in letters)
    assert give(chain, [(3, "e")])


def test_a_keyed_failure_names_the_key_and_nothing_of_the_record_stands() -> None:
    job_plan = planned(lambda s: s.key_by(lambda r: r[1]).process("x", Invert()), on_error="dead-letter")
    records = [(1, "k"), (0, "k"), (2, "k")]
    outputs = chain_of(job_plan, "x/0").deliver(0, listed(records), 0, Services())
    rows, letters = (decode_records(chunk.body) for _, chunk in outputs)
    assert rows == [("before", "k", 1), (1, "k"), ("before", "k", 2), (0, "k")]
    (letter,) = letters
    line = Invert.process.__code__.co_firstlineno + 3
    where, traceback = letter.pop("where"), letter.pop("traceback")
    assert where == f"{__file__}:{line} in process"
    assert traceback.splitlines()[1].strip() == f'File "{__file__}", line {line}, in process'
    assert letter == {
        "operator": "x",
        "key": "k",
        "position": 1,
        "record": (0, "k"),
        "error": "ZeroDivisionError: integer division or modulo by zero",
    }
    job_plan = planned(lambda s: s.key_by(lambda r: r[1]).process("x", Invert()))
    with pytest.raises(OperatorFailed, match="operator 'x', key 'k', position 1 of the channel from in/0: Zero"):
        chain_of(job_plan, "x/0").deliver(0, listed(records), 0, Services())


def test_an_output_that_cannot_travel_names_the_key_that_made_it() -> None:
    big = Calls(lambda record, ctx: ["x" * record[1]])
    job_plan = planned(lambda s: s.key_by(first_field).process("x", big), record_bytes_max=100)
    with pytest.raises(OperatorFailed, match="operator 'x', key 'b', position 1 of .*it has 503 bytes"):
        chain_of(job_plan, "x/0").deliver(0, listed([("a", 5), ("b", 500)]), 0, Services())


def test_many_small_records_may_be_more_than_the_limit_of_one() -> None:
    assert len(give(chain_of(planned(lambda s: s.map("x", str), record_bytes_max=100), "x/0"), range(500))) == 500


def test_a_letter_tells_what_it_cannot_carry() -> None:
    def fail(record: Any) -> Any:
        raise ValueError("two\nlines")

    job_plan = planned(lambda s: s.map("o", lambda r: object()).map("x", fail), on_error="dead-letter")
    (letter,) = give(chain_of(job_plan, "x/0"), [1])
    assert letter["record"] == "<object object at 0x…>"
    assert letter["error"] == "ValueError: two lines"


def test_long_records_are_cut_in_messages() -> None:
    with pytest.raises(OperatorFailed) as caught:
        give(chain_of(planned(lambda s: s.map("x", int)), "x/0"), ["y" * 10_000])
    assert len(str(caught.value)) < 1700


class Batches(Operator):
    """Gives what a function makes of each record of a batch."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def process_batch(self, records: Any, keys: Any, ctx: Any) -> Any:
        return [self._fn(record) for record in records]


@pytest.mark.parametrize(
    ("build", "records", "where"),
    [
        (lambda s: s.process("x", Batches(lambda n: 1 // n)), [1, 0], "positions 5 to 6"),
        (lambda s: s.process("x", Batches(objects)), [1, 2, 3], "positions 5 to 7"),
        (lambda s: s.process("x", Batches(objects)), [1], "position 5"),
        (lambda s: s.process("y", Batches(lambda n: 0)).map("x", lambda n: 1 // n), [1, 2, 3], "positions 5 to 7"),
        (lambda s: s.process("y", Batches(lambda n: 0)).map("x", lambda n: 1 // n), [1], "position 5"),
    ],
)
def test_a_failure_of_process_batch_is_of_all_its_records(build: Any, records: list[int], where: str) -> None:
    with pytest.raises(OperatorFailed, match=f"'x', {where} of partition 0 of source 'in': "):
        give(chain_of(planned(build), "x/0"), records, first=5)


def test_process_batch_has_no_dead_letters() -> None:
    chain = chain_of(planned(lambda s: s.process("x", Batches(lambda n: 1 // n)), on_error="dead-letter"), "x/0")
    with pytest.raises(OperatorFailed, match="'x', positions 5 to 6 of .*: ZeroDivisionError"):
        give(chain, [1, 0], first=5)


def test_open_that_raises_is_named() -> None:
    class Fails(Operator):
        def open(self, ctx: Any) -> None:
            ctx.now()

        def process(self, record: Any, ctx: Any) -> None:
            return None

    first, second = (chain_of(planned(lambda s: s.process("x", Fails())), "x/0") for _ in "12")
    with pytest.raises(OperatorFailed, match="'x'.*ctx cannot be used outside of process"):
        give(first, [1])
    with pytest.raises(OperatorFailed, match="operator 'x', before the first event: RuntimeError: ctx cannot be used"):
        second.open()  # type: ignore[attr-defined]


def swallows(record: Any, ctx: Any) -> Any:
    try:
        ctx.now()
    except Exception:
        return ["swallowed"]


def test_our_own_errors_are_not_the_users_even_when_caught() -> None:
    chain = chain_of(planned(lambda s: s.process("x", Calls(swallows)), on_error="dead-letter"), "x/0")
    with pytest.raises(ReplayDivergence):
        chain.deliver(0, listed([1]), 0, Services(log=[]))


def test_timers_and_windows_fail_by_name() -> None:
    class Timed(Operator):
        def process(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(1, "t")

        def on_timer(self, name: str, ctx: Any) -> Any:
            return [1 // 0]

    def build(stream: Stream[Any]) -> Stream[Any]:
        return stream.key_by(first_field).process("x", Timed())

    stops, continues = chain_of(planned(build), "x/0"), chain_of(planned(build, on_error="dead-letter"), "x/0")
    for chain in (stops, continues):
        give(chain, [("k", 1)])
    with pytest.raises(OperatorFailed, match="operator 'x', key 'k', when a timer or window fired: ZeroDivisionError"):
        stops.fire(2_000_000_000, Services())
    (letter,) = records_in(continues.fire(2_000_000_000, Services()))
    assert (letter["key"], letter["position"], letter["record"]) == ("k", None, {"timer": "t", "at_s": 1.0})

    def fail(key: Any, records: Any, window: Any) -> Any:
        return [1 // 0]

    window = chain_of(planned(lambda s: s.window("w", 1, fail), on_error="dead-letter"), "w/0")
    services = Services()
    give(window, [1, 2], services)
    (letter,) = records_in(window.finish(services))
    assert letter["record"] == {"window": [1000.0, 1001.0], "records": 2}


def test_a_record_that_is_none_is_laid_at_the_operator_that_gave_it() -> None:
    def build(stream: Stream[Any]) -> Stream[Any]:
        return stream.map("forgets", lambda r: None).filter("all", lambda r: True).map("x", first_field)

    line = build.__code__.co_firstlineno + 1
    with pytest.raises(OperatorFailed, match=rf"record None, which map 'forgets' \({__file__}:{line}\) returned"):
        give(chain_of(planned(build), "x/0"), [(1, "a")])

    def keyed(stream: Stream[Any]) -> Stream[Any]:
        return stream.map("forgets", lambda r: None).key_by(first_field).count("n")

    with pytest.raises(
        OperatorFailed, match="operator 'key_by before n'.*record None, which map 'forgets' .* returned"
    ):
        give(chain_of(planned(keyed), "forgets/0"), [(1, "a")])


def test_a_timer_without_on_timer_is_refused() -> None:
    sets = Calls(lambda record, ctx: ctx.set_timer(1))
    with pytest.raises(OperatorFailed, match="Calls sets a timer; define on_timer"):
        give(chain_of(planned(lambda s: s.process("x", sets)), "x/0"), [1])


def test_a_field_that_cannot_be_carried_is_named() -> None:
    with pytest.raises(OperatorFailed, match=r"NotCarried: record\['b'\]\[1\]: uuid.UUID cannot be encoded; use str"):
        ran(lambda s: s.map("x", lambda r: {"a": 1, "b": [0, UUID(int=1)]}), [0, 1])
