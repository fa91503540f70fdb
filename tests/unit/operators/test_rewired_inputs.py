"""A change of the job's graph that gives inputs other numbers changes no result.

Two streams of two partitions each meet in an operator; one may be far behind the other in event time, and records of a
partition may have the same time.  The change swaps the streams, or alters the tasks that read them or that perform the
operator.  What comes out then is what comes out without a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.ids import OUTSIDE
from causal.records.batch import WATERMARK, stamp_of, watermark
from causal.records.values import encode
from operators import BroadcastOperator, Operator, Pipeline
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan, plan
from operators.kinds.windows.aggregates import Count
from operators.kinds.windows.assigners import Tumbling
from tests.unit.operators.scene import NoSink, Services, config, parts_of, records_chunk, records_in, source
from tests.unit.operators.test_rescaling import GROUPS, owned, rescaled, saved

Place = tuple[str, int]
"""A stream and one of its partitions."""
PLACES: Sequence[Place] = [("L", 0), ("L", 1), ("R", 0), ("R", 1)]
S = 1_000_000_000


class Last(Operator):
    """Each record with the one before it of its key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (record, ctx.state.get("last"))
        ctx.state["last"] = record


class Rules(BroadcastOperator):
    """Each record with the number of rules."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (record, len(ctx.broadcast))

    def process_broadcast(self, record: Any, ctx: Any) -> None:
        ctx.broadcast[record[1], record[2]] = True


def key_of(record: Any) -> Any:
    return record[0]


def time_of(record: Any) -> Any:
    return record[3]


def left_time_of(record: Any) -> Any:
    return {"L": record[3]}[record[1]]


@dataclass(frozen=True)
class Graph:
    """The number of tasks that read each stream and that perform the operator, and whether the streams are swapped."""

    left: int = 1
    right: int = 1
    tasks: int = 1
    swapped: bool = False


Build = Callable[[Any, Any, Graph], Any]


def united(left: Any, right: Any, graph: Graph) -> Any:
    return (right.union(left) if graph.swapped else left.union(right)).key_by(key_of)


def as_of(left: Any, right: Any, graph: Graph) -> Any:
    table = right.key_by(key_of).table("rows", parallelism=graph.right)
    return left.key_by(key_of).join_table("op", table, as_of=True, how="left", parallelism=graph.tasks)


KINDS: dict[str, Build] = {
    "ordered": lambda a, b, graph: united(a, b, graph).process("op", Last(), graph.tasks, delivery="ordered"),
    "window": lambda a, b, graph: united(a, b, graph).window("op", Tumbling(10), Count(), parallelism=graph.tasks),
    "speculative": lambda a, b, graph: (
        united(a, b, graph).process("op", Last(), graph.tasks, delivery="speculative").revisions("rows")
    ),
    "as of": as_of,
    "rules": lambda a, b, graph: a.key_by(key_of).broadcast("op", b, Rules(), wait=True, parallelism=graph.tasks),
}


def planned(kind: str, graph: Graph) -> Plan:
    pipeline = Pipeline("test")
    left_time = left_time_of if kind == "ordered" else time_of
    left = pipeline.source("L", source(2), parallelism=graph.left).watermarks("lw", left_time)
    right = pipeline.source("R", source(2), parallelism=graph.right).watermarks("rw", time_of)
    KINDS[kind](left, right, graph).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


class Life:
    """The tasks of the operator between two changes of the graph, and what their channels carry.

    Args:
        marks_s: the watermark of each partition, which the lives of a job share.
        ended: the partitions that have ended, which they share as well.
        epoch: that of the savepoint behind it.
    """

    def __init__(self, kind: str, graph: Graph, marks_s: dict[Place, float], ended: set[Place], epoch: int = 1) -> None:
        self._epoch = epoch
        self.plan = planned(kind, graph)
        topology = self.plan.topology
        self.tasks = [task for task in topology.tasks if "op" in task.operators]
        self.chains = [self.plan.chain(task.index) for task in self.tasks]
        self._to_all = kind == "rules"
        self._marks_s, self._ended = marks_s, ended
        self.readers = {
            (topology.tasks[channel.target].operators[0], channel.partition): int(channel.target)
            for channel in topology.channels
            if channel.source == OUTSIDE
        }
        senders = [channel.source for channel in topology.inputs(self.tasks[0].index)]
        self._inputs = {reader: self._input(senders, reader) for reader in self.readers.values()}
        self._positions: dict[tuple[int, int], int] = {}
        self._passed_s: dict[int, float] = {}

    def _input(self, senders: Sequence[int], reader: int) -> int:
        """Return the input through which the records of a source's task come: perhaps by way of a table."""
        behind = [channel.target for channel in self.plan.topology.channels if channel.source == reader]
        return next(place for place, sender in enumerate(senders) if sender == reader or sender in behind)

    def give(self, place: Place, records: Sequence[Any], services: Services) -> list[Any]:
        """Return what the tasks make of records of a partition, and of the event time that its reader then knows."""
        reader, out = self.readers[place], list[Any]()
        input, chunks = self._inputs[reader], list[Any]()
        marks = [self._marks_s.get(each) for each in PLACES if self.readers[each] == reader and each not in self._ended]
        if marks and None not in marks:
            mark_s = min(each for each in marks if each is not None)
            if mark_s > self._passed_s.get(reader, -1.0):
                self._passed_s[reader] = mark_s
                chunks.append(watermark(round(mark_s * S)))
        for number, chain in enumerate(self.chains):
            everyone = self._to_all and place[0] == "R"
            own = [each for each in records if everyone or owned([each[0]], number, len(self.chains))]
            first = self._positions.get((number, input), 0)
            self._positions[number, input] = first + len(own)
            if own or chunks:
                arrived = [records_chunk(own), *chunks] if own else chunks
                out += records_in(chain.deliver(input, arrived, first, services))
        return out

    def end(self, place: Place, services: Services) -> list[Any]:
        """Return what the tasks make of the end of a partition, if it is the last one of its reader."""
        self._ended.add(place)
        reader, out = self.readers[place], list[Any]()
        if all(each in self._ended for each in PLACES if self.readers[each] == reader):
            for chain in self.chains:
                out += records_in(chain.ended(self._inputs[reader], services))
        return out

    def changed(self, kind: str, graph: Graph) -> Life:
        """Return the tasks of another graph, with the state of these."""
        files = {str(task.name): [parts_of(chain, True)] for task, chain in zip(self.tasks, self.chains, strict=True)}
        tasks = saved(self.plan, files)
        for each in tasks:
            feeding = [
                place for place in PLACES if self.plan.topology.tasks[self.readers[place]].name == each.task.name
            ]
            each.cut.finished = bool(feeding) and self._ended.issuperset(feeding)
            each.cut.epoch = self._epoch
        life = Life(kind, graph, self._marks_s, self._ended, self._epoch + 1)
        parts = rescaled(self.plan, tasks, life.plan).chains()
        for task, chain in zip(life.tasks, life.chains, strict=True):
            chain.restore(parts[task.name])
        return life


Event = tuple[Place, int, Sequence[int]]
"""A partition, and the key and the steps in time of its next records; no steps: it ends."""


def outcome(kind: str, graphs: Sequence[Graph], events: Sequence[Event], per_life: int) -> list[Any]:
    """Return what comes out of a job whose graph is changed after every so many events."""
    marks_s, counts = dict[Place, float](), dict.fromkeys(PLACES, 0)
    clocks_s = {place: 4.0 * PLACES.index(place) for place in PLACES}
    """Times of different partitions differ: between them no order is promised across a change."""
    ended, out, services = set[Place](), list[Any](), Services()
    life = Life(kind, graphs[0], marks_s, ended)
    for number, (place, key, steps) in enumerate(events):
        if number and number % per_life == 0 and len(graphs) > number // per_life:
            life = life.changed(kind, graphs[number // per_life])
        if place in ended:
            continue
        if not steps:
            out += life.end(place, services)
            continue
        records = []
        for step in steps:
            clocks_s[place] += 16.0 * step
            records.append(
                (key * 4 + PLACES.index(place) % 2 * 2, place[0], (place[1], counts[place]), clocks_s[place])
            )
            counts[place] += 1
        marks_s[place] = clocks_s[place]
        out += life.give(place, records, services)
    for place in PLACES:
        if place not in ended:
            out += life.end(place, services)
    for chain in life.chains:
        out += records_in(chain.finish(services))
    return out


def final(kind: str, out: Sequence[Any]) -> Any:
    """Return what must not depend on changes of the graph."""
    if kind == "speculative":
        rows: dict[Any, Any] = {}
        for place, old, new in out:
            assert rows.get(place) == old
            rows[place] = new
        return sorted(row for row in rows.values() if row is not None)
    if kind == "rules":  # records of one key wait in one order, but rules end at another moment
        return sorted(record for record, _ in out)
    return sorted(out)


graphs = st.builds(Graph, st.integers(1, 2), st.integers(1, 2), st.sampled_from((1, 1, 1, 2, 3)), st.booleans())
steps_s = st.lists(st.sampled_from((0, 1, 50)), max_size=4)
events = st.lists(st.tuples(st.sampled_from(PLACES), st.integers(0, 3), steps_s), min_size=4, max_size=24)


@pytest.mark.parametrize("kind", KINDS)
@given(changes=st.lists(graphs, min_size=2, max_size=4), events=events, per_life=st.integers(1, 8))
def test_no_result_depends_on_which_inputs_a_task_had(
    kind: str, changes: Sequence[Graph], events: Sequence[Event], per_life: int
) -> None:
    assert final(kind, outcome(kind, changes, events, per_life)) == final(kind, outcome(kind, changes[:1], events, 99))


def test_records_wait_for_no_rules_that_had_ended_before_a_change() -> None:
    services, waiting = Services(), [(key, "L", (0, key), 1.0) for key in range(8)]
    life = Life("rules", Graph(right=2, tasks=2), {}, set())
    assert life.end(("R", 0), services) == [] == life.give(("L", 0), waiting, services)
    life = life.changed("rules", Graph(right=2, tasks=3))
    assert sorted(record for record, _ in life.end(("R", 1), services)) == waiting


def test_records_do_not_wait_for_rules_that_the_new_graph_does_not_read() -> None:
    services, waiting = Services(), [(0, "L", (0, 0), 1.0)]
    life = Life("rules", Graph(right=2), {}, set())
    assert life.end(("R", 1), services) == [] == life.give(("L", 0), waiting, services)
    [chain] = life.chains
    assert isinstance(chain, FusedChain)
    stage = chain.stages[0]
    header, left, ended = stage.header(), (0, 0), (0, 2)
    assert header["waiting"]["awaited"] == [1]
    [rewired] = stage.rewired([header], [[left], [ended], [ended]])
    assert rewired["waiting"]["awaited"] == [] and rewired["waiting"]["over"]
    stage.load_header(rewired, full=False)
    out = [output for input in (0, 1) for output in chain.deliver(input, [watermark(2 * S)], 1, services)]
    assert [record for record, _ in records_in(out)] == waiting


def test_of_versions_of_one_time_that_from_behind_a_change_is_valid() -> None:
    services, marks_s = Services(), dict.fromkeys(PLACES, 1.0)
    life = Life("as of", Graph(), marks_s, set())
    life.give(("R", 0), [(4 * (number == 0), "R", (0, number), 20.0) for number in range(9)], services)
    life = life.changed("as of", Graph(right=2))
    life.give(("R", 0), [(0, "R", (0, 9), 20.0)], services)
    marks_s.update(dict.fromkeys(PLACES, 50.0))
    out = life.give(("L", 0), [(0, "L", (0, 0), 30.0)], services)
    [(_, row)] = out + [pair for place in PLACES for pair in life.give(place, [], services)]
    assert row == (0, "R", (0, 9), 20.0)


PASSING: Any = type("Passing", (Operator,), {"process": lambda self, record, ctx: [record]})


def watermarks_behind(graph: Graph) -> Plan:
    pipeline = Pipeline("test")
    left = pipeline.source("L", source(2), parallelism=graph.left)
    right = pipeline.source("R", source(2), parallelism=graph.right)
    streams = (right, left) if graph.swapped else (left, right)
    passed = streams[0].union(streams[1]).process("op", PASSING(), 1)
    passed.watermarks("time", lambda record: record).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


@pytest.mark.parametrize("graph", [Graph(swapped=True), Graph(left=2), Graph(right=2, swapped=True)])
def test_a_watermark_behind_a_union_stays_below_the_stream_that_is_behind(graph: Graph) -> None:
    before, after = watermarks_behind(Graph()), watermarks_behind(graph)
    [task], [later] = ([task for task in each.topology.tasks if "op" in task.operators] for each in (before, after))
    chain = before.chain(task.index)
    for input, time_s in enumerate((1000.0, 5.0)):
        chain.deliver(input, [records_chunk([time_s])], 0, Services())
    parts = rescaled(before, saved(before, {task.name: [parts_of(chain, True)]}), after).chains()
    chain = after.chain(later.index)
    chain.restore(parts[later.name])
    senders = [after.topology.tasks[channel.source].operators[0] for channel in after.topology.inputs(later.index)]
    marks_ns = []
    for time_s, stream in ((6.0, "R"), (1001.0, "L"), (1002.0, "L"), (7.0, "R")):
        for input in [place for place, sender in enumerate(senders) if sender == stream]:
            out = chain.deliver(input, [records_chunk([time_s])], 0, Services())
            assert records_in(out) == [time_s]
            marks_ns += [stamp_of(chunk) for _, chunk in out if chunk.kind == WATERMARK]
    assert marks_ns == [6 * S, 7 * S]


def readers(graph: Graph, parts: Mapping[str, Sequence[bytes]]) -> dict[int, Any]:
    """Return the chains of the tasks that read the left stream, by the first of their partitions."""
    job_plan, chains = planned("window", graph), dict[int, Any]()
    for task in [each for each in job_plan.topology.tasks if "lw" in each.operators]:
        chain = chains[job_plan.topology.inputs(task.index)[0].partition] = job_plan.chain(task.index)
        chain.restore(parts[task.name])
    return chains


def marks_in(outputs: Sequence[Any]) -> set[int]:
    return {stamp_of(chunk) for _, chunk in outputs if chunk.kind == WATERMARK}


def test_a_task_that_reads_only_the_partition_that_is_ahead_says_so_without_a_record() -> None:
    before, after, services = planned("window", Graph()), planned("window", Graph(left=2)), Services()
    [task] = [each for each in before.topology.tasks if "lw" in each.operators]
    chain = before.chain(task.index)
    for input, time_s in ((0, 4.0), (1, 17.0)):
        chain.deliver(input, [records_chunk([(0, "L", (input, 0), time_s)])], 0, services)
    parts = rescaled(before, saved(before, {task.name: [parts_of(chain, True)]}), after).chains()
    again = readers(Graph(left=2), {name: parts for name, parts in parts.items() if name.startswith("lw/")})
    assert (again[0].next_timer_ns(), again[1].next_timer_ns()) == (0, 0)
    files = {f"lw/{number}": parts_of(each, True) for number, each in again.items()}
    for ahead in (again[1], readers(Graph(left=2), files)[1]):  # a checkpoint may come first
        assert marks_in(ahead.fire(1, services)) == {17 * S}
        assert ahead.next_timer_ns() is None
    assert not marks_in(again[0].fire(1, services)), "its readers know its watermark"
    behind = again[0].deliver(0, [records_chunk([(0, "L", (0, 1), 6.0)])], 1, services)
    assert marks_in(behind) == {6 * S}


def test_a_task_that_reads_all_partitions_again_is_as_far_as_the_last_of_them() -> None:
    before, after, services = planned("window", Graph(left=2)), planned("window", Graph()), Services()
    tasks = [each for each in before.topology.tasks if "lw" in each.operators]
    chains = [before.chain(task.index) for task in tasks]
    for number, (chain, time_s) in enumerate(zip(chains, (4.0, 17.0), strict=True)):
        chain.deliver(0, [records_chunk([(0, "L", (number, 0), time_s)])], 0, services)
    files = {str(task.name): [parts_of(chain, True)] for task, chain in zip(tasks, chains, strict=True)}
    parts = rescaled(before, saved(before, files), after).chains()
    [chain] = readers(Graph(), {"lw/0": parts["lw/0"]}).values()
    assert not marks_in(chain.fire(1, services)), "its readers know its watermark"
    assert marks_in(chain.deliver(0, [records_chunk([(0, "L", (0, 1), 6.0)])], 1, services)) == {6 * S}


def asking(tasks: int) -> Plan:
    pipeline = Pipeline("test")
    keyed = pipeline.source("L", source()).watermarks("lw", time_of).key_by(key_of)
    keyed.call("op", lambda record, key: key, parallelism=tasks).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


@pytest.mark.parametrize(("tasks", "later"), [(2, 3), (2, 1), (1, 2)])
def test_a_task_that_takes_over_no_request_does_not_hold_back_a_watermark(tasks: int, later: int) -> None:
    before, after, services, files = asking(tasks), asking(later), Services(), dict[str, list[list[bytes]]]()
    for number in range(tasks):
        task = before.topology.named(f"op/{number}")
        assert task is not None
        chain = before.chain(task.index)
        assert marks_in(chain.deliver(0, [watermark(10 * S)], 0, services)) == {10 * S}
        own = owned([1], number, tasks)
        if own:
            chain.deliver(0, [records_chunk([(each, "L", (0, 0), 20.0) for each in own])], 1, services)
        assert marks_in(chain.deliver(0, [watermark(30 * S)], 2, services)) == (set() if own else {30 * S})
        files[task.name] = [parts_of(chain, True)]
    parts = rescaled(before, saved(before, files), after).chains()
    for number in range(later):
        task = after.topology.named(f"op/{number}")
        assert task is not None
        chain = after.chain(task.index)
        chain.restore(parts[task.name])
        waiting = chain.outstanding()
        assert len(waiting) == len(owned([1], number, later)) and chain.next_timer_ns() == 0
        marks_ns = marks_in(chain.fire(1, services))
        assert chain.next_timer_ns() is None
        for request in waiting:
            assert not marks_ns
            marks_ns = marks_in(chain.answer(request.operator, request.number, encode([True, "yes"]), services))
        assert marks_ns == {30 * S}


@pytest.mark.parametrize("graph", [Graph(left=2), Graph(left=2, tasks=2), Graph()])
def test_a_task_begins_with_the_watermark_of_each_input_that_continues(graph: Graph) -> None:
    before, after = planned("ordered", Graph(left=2)), planned("ordered", graph)
    [task] = [each for each in before.topology.tasks if "op" in each.operators]
    chain = before.chain(task.index)
    for input, mark_s in ((0, 4), (1, 17)):
        chain.deliver(input, [watermark(mark_s * S)], 0, Services())
    rescaling = rescaled(before, saved(before, {task.name: [parts_of(chain, True)]}), after)
    rescaling.chains()
    cuts = rescaling.cuts({"out/0": (9, 2)})
    expected = [(4 * S, False), (17 * S, False)] if graph.left == 2 else [(4 * S, False)]
    for later in [each for each in after.topology.tasks if "op" in each.operators]:
        channels = after.topology.inputs(later.index)
        assert [cuts[later.name].marks.get(channel.id) for channel in channels] == [*expected, None]
    assert not any(cut.marks for name, cut in cuts.items() if not name.startswith("op/"))
