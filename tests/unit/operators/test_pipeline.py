"""Each mistake in a pipeline is one line that names the place and the correction."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import KeyedStream, Operator, Pipeline, Stream
from tests.unit.operators.scene import NoSink, source


class Nothing(Operator):
    def process(self, record: Any, ctx: Any) -> None:
        return None


class Missing(Operator):
    pass


def begin() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("test")
    return pipeline, pipeline.source("in", source())


def no_sink(pipeline: Pipeline, stream: Any) -> None:
    stream.map("double", lambda r: r)


def one_branch_without_sink(pipeline: Pipeline, stream: Any) -> None:
    stream.sink("out", NoSink())
    pipeline.stream("in").map("lost", lambda r: r)


def cycle(pipeline: Pipeline, stream: Any) -> None:
    stream.map("a", lambda r: r).map("b", lambda r: r).sink("out", NoSink())
    pipeline.connect("b", "a")


def loose_key_by(pipeline: Pipeline, stream: Any) -> None:
    stream.sink("out", NoSink())
    stream.key_by(lambda r: r)


def loose_union(pipeline: Pipeline, stream: Any) -> None:
    stream.sink("out", NoSink())
    stream.union(pipeline.stream("in"))


def half_keyed(pipeline: Pipeline, stream: Any) -> None:
    stream.key_by(lambda r: r).union(stream).process("p", Nothing()).sink("out", NoSink())


def too_parallel_source(pipeline: Pipeline, stream: Any) -> None:
    stream.sink("out", NoSink())
    pipeline.source("wide", source(2), parallelism=3).sink("out2", NoSink())


MISTAKES: list[tuple[Callable[[Pipeline, Any], object], str]] = [
    (no_sink, "nothing reads from operator 'double'; end every branch with .sink"),
    (one_branch_without_sink, "nothing reads from operator 'lost'"),
    (cycle, "operators form a cycle: .*(a -> b -> a|b -> a -> b); remove one"),
    (loose_key_by, "nothing reads the output of key_by; follow it with .process"),
    (loose_union, "nothing reads the output of union; follow it with"),
    (half_keyed, "'p' reads one stream with key_by and one without; call key_by after the union"),
    (too_parallel_source, r"'wide' has fewer partitions \(2\) than tasks \(parallelism=3\)"),
    (
        lambda p, s: s.map("in", lambda r: r),
        r"operator 'in' already exists \(.*test_pipeline.py:\d+\); choose another name",
    ),
    (lambda p, s: s.map("a/b", lambda r: r), "'a/b' cannot name an operator; use letters"),
    (lambda p, s: s.map("..", lambda r: r), "'..' cannot name"),
    (lambda p, s: s.map(3, lambda r: r), "3 cannot name"),
    (lambda p, s: s.map("dead-letters", lambda r: r), "is taken by the dead-letter output"),
    (lambda p, s: p.stream("count"), "operator 'count' does not exist; the operators are in"),
    (lambda p, s: p.stream(["in"]), r"operator \['in'\] does not exist; the operators are in$"),  # type: ignore[arg-type]
    (lambda p, s: p.connect("in", "count"), "operator 'count' does not exist"),
    (lambda p, s: p.connect("in", "in"), "cannot feed 'in'"),
    (lambda p, s: s.map("m", 3), "map 'm' was given a int; pass a function"),
    (lambda p, s: s.key_by("k"), "key_by was given a str; pass a function"),
    (lambda p, s: s.process("p", Nothing), "given the class Nothing; pass Nothing()"),
    (lambda p, s: s.process("p", lambda r: r), "pass an instance of a subclass of Operator"),
    (lambda p, s: s.process("p", Missing()), r"Missing has no method process; define process\(self, record, ctx\)"),
    (lambda p, s: s.process("p", Nothing(), parallelism=0), "parallelism 0; use a whole number from 1"),
    (lambda p, s: s.process("p", Nothing(), parallelism="2"), "parallelism '2'"),
    (lambda p, s: s.sink("o", "out.db"), "sink 'o' was given a str; pass a Sink"),
    (lambda p, s: p.source("s", [1, 2]), "source 's' was given a list"),  # type: ignore[arg-type]
    (lambda p, s: s.count("n"), r"count 'n' works per key; put .key_by\(fn\) before it"),
    (lambda p, s: s.reduce("n", max), "works per key"),
    (lambda p, s: s.table("t"), r"table 't' works per key; put .key_by\(fn\) before it"),
    (lambda p, s: s.join("j", s.key_by(len), (0, 1)), r"left side is not keyed, .* put .key_by\(fn\) before both"),
    (lambda p, s: s.join_table("j", s.key_by(len).table("t")), r"works per key; put .key_by\(fn\) before it"),
    (lambda p, s: s.union(s.key_by(len)).count("n"), r"count 'n' works per key; put .key_by\(fn\) before it"),
    (lambda p, s: s.key_by(len).reduce("n", max, initial={1}), "a set does not keep its order"),
    (lambda p, s: s.key_by(len).map("m", len), "map 'm' follows key_by, but keeps no state per key"),
    (lambda p, s: s.key_by(len).sink("o", NoSink()), "sink 'o' follows key_by"),
    (lambda p, s: s.window("w", 0, len), "size_s 0; use seconds"),
    (lambda p, s: s.union("in"), "union was given a str; use streams"),
    (lambda p, s: s.union(begin()[1]), "a stream of another pipeline"),
    (lambda p, s: Pipeline("a b"), "'a b' cannot name a pipeline"),
    (lambda p, s: Pipeline("empty").check(), "has no source; begin with"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_one_line_with_place_and_mend(mistake: Callable[[Pipeline, Any], object], message: str) -> None:
    pipeline, stream = begin()
    with pytest.raises(PipelineError, match=message) as caught:
        mistake(pipeline, stream)
        pipeline.check()
    assert str(caught.value).startswith(f"{Path(__file__)}:")
    assert "\n" not in str(caught.value)


def test_a_stream_is_keyed_until_an_operator_reads_it() -> None:
    _, stream = begin()
    keyed = stream.key_by(len)
    same = [keyed, keyed.union(stream.key_by(len)), keyed.timed(len), keyed.key_by(str)]
    assert [type(each) for each in same] == [KeyedStream] * 4
    assert type(keyed.count("n")) is Stream and not {"count", "join"} & set(dir(stream))


def test_a_name_that_no_stream_has_is_an_attribute_error() -> None:
    _, stream = begin()
    for each in (stream, stream.key_by(len)):
        with pytest.raises(AttributeError, match=f"'{type(each).__name__}' object has no attribute 'cuont'"):
            each.cuont("n")


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (lambda s: s.map("m"), r"^Stream.map\(\) missing 1 required positional argument: 'fn'"),
        (lambda s: s.process(name="p"), r"^Stream.process\(\) missing 1 required"),
        (lambda s: s.key_by(), r"^Stream.key_by\(\) missing"),
        (lambda s: s.key_by(len).count("n", paralellism=2), r"^KeyedStream.count\(\) got an unexpected keyword"),
        (lambda s: s.join("j"), r"^KeyedStream.join\(\) missing 1 required"),
    ],
)
def test_a_wrong_argument_is_one_of_the_class_that_users_know(build: Callable[[Any], object], line: str) -> None:
    with pytest.raises(TypeError, match=line):
        build(begin()[1])


def test_methods_have_names_by_which_they_are_found() -> None:
    for method in (Stream.map, Stream.window, KeyedStream.count, KeyedStream.join):
        assert pickle.loads(pickle.dumps(method)) is method


def test_a_good_pipeline_passes() -> None:
    pipeline, stream = begin()
    keyed = stream.filter("some", bool).union(pipeline.stream("in").flat_map("many", list)).key_by(lambda r: r)
    keyed.count("n", parallelism=2).sink("out", NoSink())
    keyed.reduce("sum", lambda a, r: a + r, initial=0).sink("out2", NoSink())
    assert stream.window("w", 0.5, lambda k, rs, w: rs).sink("out3", NoSink()) is pipeline
    pipeline.check()
    assert list(pipeline.sources) == ["in"]
