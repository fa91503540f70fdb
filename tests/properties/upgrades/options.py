"""Upgrades in which one option of one operator changes: every option that the builder has, by its witnesses.

The witnesses are those of `tests/unit/operators/option_cases*.py`, where a new option must have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from causal.errors import PipelineError
from operators import ListState, MapState, Pipeline, ReducingState, ValueState
from operators.builder.pipeline import KeyedStream, Stream, Table
from operators.testing import At
from tests.oracles.frame import AnySink, AnyTableSink, NoSink
from tests.properties.upgrades.driving import Channel, Event, Invalid, Scene
from tests.unit.operators.option_cases import STREAM_CASES, TABLE_CASES, Case
from tests.unit.operators.option_cases_held import STATE_CASES, WINDOW_CASES

CASES = [*STREAM_CASES, *TABLE_CASES, *WINDOW_CASES, *STATE_CASES]

OTHERS: Mapping[tuple[Callable[..., Any], str], tuple[Any, Any]] = {
    (Stream.sink, "sink"): (AnySink(), NoSink()),
    (Table.sink, "sink"): (AnyTableSink(), AnyTableSink()),
    (Stream.call, "retries"): (1, 2),
    (Stream.to_vectors, "schema"): (
        {"k": "string", "at": "int64", "v": "int64"}, {"k": "string", "at": "float64", "v": "int64"}
    ),
    (Stream.watermarks, "idle_after_s"): (None, 1000.0),
}  # fmt: skip
TTLS = (1000.0, 2000.0)
OTHERS = {**OTHERS, **{(of, "ttl_s"): TTLS for of in (ValueState, ListState, MapState, ReducingState)}}
"""Other values where a witness ends the job, or shows by the passing of time."""


NOT_HERE: Mapping[tuple[Callable[..., Any], str], str] = {
    **{(of, "kind"): "tests/unit/operators/test_state_schema.py" for of in (ListState, MapState, ReducingState)},
    (ValueState, "kind"): "tests/unit/operators/test_state_schema.py",
    (Stream.union, "streams"): "tests/properties/upgrades/graphs.py, a source that is added",
    (KeyedStream.join, "other"): "tests/properties/upgrades/graphs.py",
    (KeyedStream.window_join, "other"): "tests/properties/upgrades/graphs.py",
    (Table.side, "tag"): "a side output that does not exist is refused",
}
"""Options whose change is tested elsewhere, or is none."""


@dataclass(frozen=True)
class Change:
    """One option of one operator goes from one of its values to the other.

    Attributes:
        number: of the case.
        back: from the second value to the first.
    """

    number: int
    option: str
    back: bool

    @property
    def operator(self) -> str:
        """The operator, as the builder calls it."""
        return str(CASES[self.number].of.__qualname__)

    @property
    def name(self) -> str:
        """The change, for people and for `--only`."""
        return f"{self.operator}({self.option}){' back' if self.back else ''} #{self.number}"


def changes() -> list[Change]:
    """Return all changes."""
    return [
        Change(number, option, back)
        for number, case in enumerate(CASES)
        for option in case.options
        if option not in case.without and (case.of, option) not in NOT_HERE
        for back in (False, True)
    ]


def scene(change: Change, chance: Random) -> Scene:
    """Draw an upgrade: the other options, the order of the input and where the savepoint is."""
    case = CASES[change.number]
    values: dict[str, tuple[Any, Any]] = {
        name: OTHERS.get((case.of, name), both) for name, both in (*case.options.items(), *case.beside.items())
    }
    common = {
        name: chance.choice(both) if chance.random() < 0.3 and name not in ("kind", "other") else both[0]
        for name, both in values.items()
    }
    first, second = values[change.option][:: -1 if change.back else 1]
    versions = [{**common, change.option: value} for value in (first, second)]
    if chance.random() < 0.2 and "parallelism" in values and change.option != "parallelism":
        versions[1]["parallelism"] = 3 - versions[1]["parallelism"]
    builds = [partial(_built, case, options) for options in versions]
    try:
        events = interleaved(_channels(case, versions), chance)
    except PipelineError as problem:
        raise Invalid(str(problem)) from problem
    shown = f"{change.name}: {versions[0]!r} -> {versions[1]!r}"
    return Scene(builds[0], builds[1], events, chance.randint(1, len(events) - 1), shown=shown)


def _built(case: Case, options: Mapping[str, Any]) -> Pipeline:
    return case.built(options)[0]


def _channels(case: Case, versions: Sequence[Mapping[str, Any]]) -> dict[Channel, list[Any]]:
    """Return the records of each partition of both versions."""
    channels: dict[Channel, list[Any]] = {}
    for options in versions:
        pipeline, inputs = case.built(options)
        for node in pipeline.nodes:
            if node.kind == "source":
                for number, records in enumerate(_apart(node.subject.partitions, inputs.get(node.name))):
                    channels[node.name, number] = records
    return channels


def _apart(partitions: int, inputs: Any) -> Iterator[list[Any]]:
    lists = [list(range(10 * number, 10 * number + 5)) for number in range(partitions)] if inputs is None else inputs
    if not lists or not all(type(each) is list for each in lists):
        lists = [lists, *([] for _ in range(partitions - 1))]
    for each in lists:
        records = [record.record if isinstance(record, At) else record for record in each]
        yield [record for record in records if not isinstance(record, type(At(0).record))]


def interleaved(channels: Mapping[Channel, Sequence[Any]], chance: Random) -> list[Event]:
    """Return the records of all partitions in some order, each partition's in its own; some end early."""
    left = {channel: [*(Event(channel, record) for record in records)] for channel, records in channels.items()}
    last = []
    for channel, events in left.items():
        if chance.random() < 0.4:
            events.append(Event(channel, ends=True))
        else:
            last.append(Event(channel, ends=True))
    order: list[Event] = []
    while any(left.values()):
        channel = chance.choice([channel for channel, events in left.items() if events])
        order.append(left[channel].pop(0))
    return order + last
