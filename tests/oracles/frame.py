"""The frame of all oracles: a scenario is drawn from a seed, run with and without crashes, and judged.

An oracle is a function from `Draw` to `Scenario`, registered under a name:

    @oracle("count")
    def count(draw: Draw) -> Scenario: ...

It is written from the documentation, not from the code.  Whatever a user may choose and must not see in the rows
(batch size, seed, checkpoints, crashes) is drawn here, for all oracles alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from causal.errors import PipelineError
from causal.ports import SinkStore
from causal.values import encode
from operators import Pipeline
from operators.keyed.cold_values import Disk
from operators.pipeline import Stream
from operators.sinks.base import Sink
from operators.sources import GeneratedSource
from operators.testing import Told, run

T = TypeVar("T")

BATCHES = (1, 1, 2, 3, 7, 100)
CHECKPOINTS = (None, None, 0, 1, 2, 5)
CRASHES_MAX = 3
SHOWN_MAX = 600
LETTERS = "dead-letters"


class Mismatch(AssertionError):
    """The rows of a run are not those of the oracle."""


class Draw(random.Random):
    """Chance that follows from the name of an oracle and a seed."""

    def flip(self, chance: float = 0.5) -> bool:
        """True with that chance."""
        return self.random() < chance

    def listed(self, length_max: int, make: Callable[[], T]) -> list[T]:
        """Up to so many of what `make` gives; short lists are likely, so that small cases come up."""
        length = self.randint(0, length_max) if self.flip(0.7) else self.randint(0, min(4, length_max))
        return [make() for _ in range(length)]

    def maybe(self, options: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Keyword arguments: each option is left out, or has one of its values."""
        return {name: self.choice(values) for name, values in options.items() if self.flip(0.6)}


Check = Callable[[Told], None]


@dataclass(frozen=True)
class Scenario:
    """One example.

    Attributes:
        inputs: as for `operators.testing.run`.
        check: raises `Mismatch`.
        config: further arguments of `run`, such as `on_error` or `clock_s`.
        batches: batch sizes of which one is drawn.
        crashes: how many crashes there are at most.
        shown: what the example is, for people.
    """

    pipeline: Pipeline
    inputs: Mapping[str, Sequence[Any]]
    check: Check
    config: Mapping[str, Any] = field(default_factory=dict)
    batches: Sequence[int] = BATCHES
    crashes: int = CRASHES_MAX
    shown: str = ""


Make = Callable[[Draw], Scenario]
ORACLES: dict[str, Make] = {}


def oracle(name: str) -> Callable[[Make], Make]:
    """Register an oracle; names are unique."""

    def registered(make: Make) -> Make:
        if name in ORACLES:
            raise ValueError(f"two oracles are called {name!r}")
        ORACLES[name] = make
        return make

    return registered


def examine(name: str, seed: int) -> None:
    """Draw one example, run it as it is and with crashes, and judge both.

    Raises:
        Mismatch: rows that the oracle does not give; any other exception is a failure as well.
    """
    draw = Draw(f"{name}/{seed}")
    scenario = ORACLES[name](draw)
    # Drawn from another stream, so that a change here does not change the scenarios.
    circumstances = Draw(f"{name}/{seed}/circumstances")
    options = {
        "seed": circumstances.randrange(10_000),
        "batch": circumstances.choice(scenario.batches),
        "checkpoint_every": circumstances.choice(CHECKPOINTS),
        **scenario.config,
    }
    with budget_of_one_byte():
        _examined(scenario, circumstances, options)


def _examined(scenario: Scenario, circumstances: Draw, options: dict[str, Any]) -> None:
    told = run(scenario.pipeline, scenario.inputs, **options)
    _judge(scenario, told, options)
    places = [(task, number) for task, given in told.elements.items() for number in range(1, given + 1)]
    if scenario.crashes and places:
        crash: dict[str, list[int]] = {}
        for task, number in circumstances.sample(places, min(len(places), circumstances.randint(1, scenario.crashes))):
            crash.setdefault(task, []).append(number)
        try:
            told = run(scenario.pipeline, scenario.inputs, crash=crash, **options)
        except PipelineError as problem:
            # Where the order of arrival is chance, a crash of one task may leave another one with fewer records.
            if "never came" not in str(problem):
                raise
        else:
            _judge(scenario, told, {**options, "crash": crash})


@contextmanager
def budget_of_one_byte() -> Iterator[None]:
    """State that may be on disk is there between any two events."""
    real = Disk.values

    def values(disk: Disk, *arguments: Any, **options: Any) -> Any:
        return real(Disk(disk.directory, 1), *arguments, **options)

    with mock.patch.object(Disk, "values", values):
        yield


def _judge(scenario: Scenario, told: Told, options: Mapping[str, Any]) -> None:
    try:
        scenario.check(told)
    except Mismatch as problem:
        shown = f"{scenario.shown[:SHOWN_MAX]}\nrun with {dict(options)}\ninputs {scenario.inputs!r:.2000}"
        raise Mismatch(f"{problem}\n{shown}") from problem


# Pipelines.


class NoSink(Sink):
    """Encodes as every sink does; the kit keeps the rows."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Never asked."""
        raise NotImplementedError


class AnySink(NoSink):
    """Takes whatever a record may be."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Any bytes: the kit keeps the records themselves."""
        return encode(list(records))


def source(pipeline: Pipeline, name: str = "in", partitions: int = 1) -> Stream[Any]:
    """A source that is given its records by the inputs of the run."""
    return pipeline.source(name, GeneratedSource(lambda partition, index: index, count=0, partitions=partitions))


def sink(stream: Any, name: str = "out", **options: Any) -> None:
    """A sink that takes every record."""
    stream.sink(name, AnySink(), **options)


# Comparisons, all by encoding: 1, 1.0 and True differ, NaN is NaN.


def exact(sink: str, expected: Sequence[Any]) -> Check:
    """These rows, in this order."""

    def check(told: Told) -> None:
        same(sink, told.rows.get(sink, []), expected)

    return check


def bag(sink: str, expected: Sequence[Any]) -> Check:
    """These rows, in any order."""

    def check(told: Told) -> None:
        given, wanted = Counter(map(encode, told.rows.get(sink, []))), Counter(map(encode, expected))
        if given != wanted:
            _differ(sink, told.rows.get(sink, []), expected, given, wanted)

    return check


def per_key(sink: str, expected: Sequence[Any], key: Callable[[Any], Any]) -> Check:
    """These rows, those of one key in this order."""

    def check(told: Told) -> None:
        rows = told.rows.get(sink, [])
        bag(sink, expected)(told)
        for each in {encode(key(row)) for row in expected}:
            of_key = [[row for row in listed if encode(key(row)) == each] for listed in (rows, expected)]
            same(f"{sink}, one key", of_key[0], of_key[1])

    return check


def every(*checks: Check) -> Check:
    """All of these."""

    def check(told: Told) -> None:
        for each in checks:
            each(told)

    return check


def counted(operator: str, expected: Mapping[str, int]) -> Check:
    """What the operator has counted: these reasons so often, and no other."""

    def check(told: Told) -> None:
        wanted = {reason: count for reason, count in expected.items() if count}
        if told.counts.get(operator, {}) != wanted:
            raise Mismatch(f"{operator} counted {told.counts.get(operator, {})}, expected {wanted}")

    return check


def letters(expected: Sequence[tuple[str, Any]]) -> Check:
    """Dead letters of these (operator, record as JSON has it), in any order."""

    def check(told: Told) -> None:
        rows = [[letter["operator"], letter["record"]] for letter in told.rows.get(LETTERS, [])]
        wanted = [[operator, record] for operator, record in expected]
        given, known = Counter(map(repr, rows)), Counter(map(repr, wanted))
        if given != known:
            _differ(LETTERS, rows, wanted, given, known)

    return check


def same(what: str, given: Sequence[Any], expected: Sequence[Any]) -> None:
    """Refuse rows that differ.

    Raises:
        Mismatch: with the first difference.
    """
    for place, (row, wanted) in enumerate(zip(given, expected, strict=False)):
        if encode(row) != encode(wanted):
            raise Mismatch(f"{what}: row {place} is {row!r}, expected {wanted!r}{_both(given, expected)}")
    if len(given) != len(expected):
        raise Mismatch(f"{what}: {len(given)} rows, expected {len(expected)}{_both(given, expected)}")


def _differ(what: str, rows: Sequence[Any], expected: Sequence[Any], given: Counter[Any], wanted: Counter[Any]) -> None:
    more, less = sum((given - wanted).values()), sum((wanted - given).values())
    raise Mismatch(f"{what}: {more} rows too many, {less} missing{_both(rows, expected)}")


def _both(given: Sequence[Any], expected: Sequence[Any]) -> str:
    return f"\n given    {_cut(given)}\n expected {_cut(expected)}"


def _cut(rows: Sequence[Any]) -> str:
    return repr(list(rows))[:SHOWN_MAX]
