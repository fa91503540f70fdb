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

from causal.config import PROCESSES
from causal.errors import PipelineError
from causal.ports import SinkStore
from causal.records.values import encode
from operators import Pipeline
from operators.builder.pipeline import Stream
from operators.sinks.contract.sink import Sink
from operators.sources import GeneratedSource
from operators.state.cold_values import Disk
from operators.testing import TrialResult, run

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


Check = Callable[[TrialResult], None]


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
    options["processes"] = Draw(f"{name}/{seed}/processes").choice(groupings(scenario.pipeline))
    with budget_of_one_byte():
        _examined(scenario, circumstances, options)


def groupings(pipeline: Pipeline) -> Sequence[str]:
    """Return the ways in which the operators of a pipeline can share processes."""
    parallel = any(node.parallelism > 1 for node in pipeline.nodes)
    return [each for each in PROCESSES if each and not (each == "one" and parallel)]


def _examined(scenario: Scenario, circumstances: Draw, options: dict[str, Any]) -> None:
    result = run(scenario.pipeline, scenario.inputs, **options)
    _judge(scenario, result, options)
    places = [(task, number) for task, elements in result.elements.items() for number in range(1, elements + 1)]
    if scenario.crashes and places:
        crash: dict[str, list[int]] = {}
        for task, number in circumstances.sample(places, min(len(places), circumstances.randint(1, scenario.crashes))):
            crash.setdefault(task, []).append(number)
        try:
            result = run(scenario.pipeline, scenario.inputs, crash=crash, **options)
        except PipelineError as problem:
            # Where the order of arrival is chance, a crash of one task may leave another one with fewer records.
            if "never happened" not in str(problem):
                raise
        else:
            _judge(scenario, result, {**options, "crash": crash})


@contextmanager
def budget_of_one_byte() -> Iterator[None]:
    """State that may be on disk is there between any two events."""
    real = Disk.values

    def values(disk: Disk, *arguments: Any, **options: Any) -> Any:
        return real(Disk(disk.directory, 1), *arguments, **options)

    with mock.patch.object(Disk, "values", values):
        yield


def _judge(scenario: Scenario, result: TrialResult, options: Mapping[str, Any]) -> None:
    try:
        scenario.check(result)
    except Mismatch as problem:
        shown = f"{scenario.shown[:SHOWN_MAX]}\nrun with {dict(options)}\ninputs {scenario.inputs!r:.2000}"
        raise Mismatch(f"{problem}\n{shown}") from problem


# Pipelines.


class NoSink(Sink):
    """Encodes as every sink does; the kit keeps the rows."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Never called."""
        raise NotImplementedError


class AnySink(NoSink):
    """Takes whatever a record may be."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return any bytes: the kit keeps the records themselves."""
        return encode(list(records))


class AnyTableSink(AnySink):
    """Takes whatever a table may have."""

    upsert = True


def source(pipeline: Pipeline, name: str = "in", partitions: int = 1, **options: Any) -> Stream[Any]:
    """A source whose records are the inputs of the run."""
    generated = GeneratedSource(lambda partition, index: index, count=0, partitions=partitions)
    return pipeline.source(name, generated, **options)


def sink(stream: Any, name: str = "out", **options: Any) -> None:
    """A sink that takes every record."""
    stream.sink(name, AnySink(), **options)


# Comparisons, all by encoding: 1, 1.0 and True differ, NaN is NaN.


def exact(sink: str, expected: Sequence[Any]) -> Check:
    """Return a check that a sink has these rows, in this order."""

    def check(result: TrialResult) -> None:
        same(sink, result.rows.get(sink, []), expected)

    return check


def bag(sink: str, expected: Sequence[Any]) -> Check:
    """Return a check that a sink has these rows, in any order."""

    def check(result: TrialResult) -> None:
        actual, wanted = Counter(map(encode, result.rows.get(sink, []))), Counter(map(encode, expected))
        if actual != wanted:
            _differ(sink, result.rows.get(sink, []), expected, actual, wanted)

    return check


def per_key(sink: str, expected: Sequence[Any], key: Callable[[Any], Any]) -> Check:
    """Return a check that a sink has these rows, those of one key in this order."""

    def check(result: TrialResult) -> None:
        rows = result.rows.get(sink, [])
        bag(sink, expected)(result)
        for each in {encode(key(row)) for row in expected}:
            of_key = [[row for row in listed if encode(key(row)) == each] for listed in (rows, expected)]
            same(f"{sink}, one key", of_key[0], of_key[1])

    return check


def every(*checks: Check) -> Check:
    """Return a check that makes all of these."""

    def check(result: TrialResult) -> None:
        for each in checks:
            each(result)

    return check


def counted(operator: str, expected: Mapping[str, int]) -> Check:
    """Return a check that the operator has counted these reasons so often, and no other."""

    def check(result: TrialResult) -> None:
        wanted = {reason: count for reason, count in expected.items() if count}
        if result.counts.get(operator, {}) != wanted:
            raise Mismatch(f"{operator} counted {result.counts.get(operator, {})}, expected {wanted}")

    return check


def letters(expected: Sequence[tuple[str, Any]]) -> Check:
    """Return a check for dead letters of these (operator, record as JSON has it), in any order."""

    def check(result: TrialResult) -> None:
        rows = [[letter["operator"], letter["record"]] for letter in result.rows.get(LETTERS, [])]
        wanted = [[operator, record] for operator, record in expected]
        actual, known = Counter(map(repr, rows)), Counter(map(repr, wanted))
        if actual != known:
            _differ(LETTERS, rows, wanted, actual, known)

    return check


def same(what: str, actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Refuse rows that differ.

    Raises:
        Mismatch: with the first difference.
    """
    for place, (row, wanted) in enumerate(zip(actual, expected, strict=False)):
        if encode(row) != encode(wanted):
            raise Mismatch(f"{what}: row {place} is {row!r}, expected {wanted!r}{_both(actual, expected)}")
    if len(actual) != len(expected):
        raise Mismatch(f"{what}: {len(actual)} rows, expected {len(expected)}{_both(actual, expected)}")


def _differ(
    what: str, rows: Sequence[Any], expected: Sequence[Any], actual: Counter[Any], wanted: Counter[Any]
) -> None:
    more, less = sum((actual - wanted).values()), sum((wanted - actual).values())
    raise Mismatch(f"{what}: {more} rows too many, {less} missing{_both(rows, expected)}")


def _both(actual: Sequence[Any], expected: Sequence[Any]) -> str:
    return f"\n actual   {_cut(actual)}\n expected {_cut(expected)}"


def _cut(rows: Sequence[Any]) -> str:
    return repr(list(rows))[:SHOWN_MAX]
