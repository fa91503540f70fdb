"""Chains that know what each of their records comes from, for the lineage of a row (0057).

They perform exactly what the chains of the job performed, batch by batch, and return the same bytes. What is added is
that a cause accompanies each record: from the channel through the stages, and into the chunks that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from causal.config import JobConfig
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Output, Services
from causal.records.batch import LISTED, RECORDS, Chunk, Records, encode_records
from causal.records.rows import Counted, copied, listed
from causal.records.values import NotCarried
from causal.topology import Channel
from operators.builder.pipeline import Pipeline
from operators.engine.chain import FusedChain
from operators.engine.fusion import fuse
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan
from operators.records.item_keys import keys_in
from operators.records.keys import canonical_keys
from operators.records.ownership import copy_containers
from operators.replay.provenance import STATE, Cause, Derivation, Event, Provenance, TracedOperator
from operators.replay.traced_kinds import trace_of
from operators.replay.traced_stages import StageTrace
from operators.stage.branch import Branch
from operators.stage.failures import NO_KEY
from operators.stage.routing import (
    BroadcastRoute,
    CountedRoute,
    DirectRoute,
    KeyedRoute,
    Route,
    StraightRoute,
    TurnRoute,
)


class Passage:
    """The causes of the records that are on their way between subtasks.

    Attributes:
        provenance: what has happened so far.
        wanted: the channel and the position of a row; its cause is kept in `cause` when it is emitted.
    """

    def __init__(self) -> None:
        self.provenance = Provenance()
        self.wanted = -1, -1
        self.cause: Cause | None = None
        self.row: tuple[Chunk, int] | None = None
        """The chunk with the wanted row, and its place there."""
        self.entries: dict[int, int] = {}
        """Channel between subtasks → the same channel between tasks, for those that are not within one cell."""
        self._chunks: dict[int, tuple[Chunk, Sequence[Cause]]] = {}
        """The chunks of the current event, by id."""
        self._arriving: dict[int, list[tuple[int, Sequence[Cause]]]] = {}
        """Channel → (position, causes) of what has been emitted and was not delivered yet."""

    def begin(self, event: Event) -> None:
        """Begin an event."""
        self._chunks.clear()
        self.provenance.events.append(event)

    def put(self, chunk: Chunk, causes: Sequence[Cause]) -> None:
        """Add the causes of the records of a chunk that leaves a subtask."""
        self._chunks[id(chunk)] = chunk, causes

    def emitted(self, channel: Channel, position: int, chunk: Chunk) -> None:
        """Move the causes of a chunk to the channel on which its task has put it."""
        if id(chunk) not in self._chunks:
            return
        _, causes = self._chunks[id(chunk)]
        if channel.target != OUTSIDE:
            self._arriving.setdefault(channel.id, []).append((position, causes))
        elif channel.id == self.wanted[0] and position <= self.wanted[1] < position + chunk.count:
            place = self.wanted[1] - position
            self.cause, self.row = causes[place], (chunk, place)

    def delivered(self, channel: Channel, chunks: Sequence[Chunk], first: int) -> tuple[list[Cause], list[int]]:
        """Return the cause and the element of each record that a subtask receives from a channel between subtasks."""
        causes, elements, position = list[Cause](), list[int](), first
        for chunk in chunks:
            if chunk.kind in (RECORDS, LISTED):
                number = self.provenance.deliver(channel.id, position, chunk.count, _body(chunk))
                numbers = range(number, number + chunk.count)
                elements += numbers
                if channel.source == OUTSIDE:
                    causes += [-1 - each for each in numbers]
                elif channel.id in self.entries:
                    causes += self._taken(self.entries[channel.id], position, chunk.count)
                else:
                    causes += self._chunks[id(chunk)][1]
            position += chunk.count
        return causes, elements

    def _taken(self, channel: int, position: int, count: int) -> list[Cause]:
        """Remove and return the causes of elements that a channel delivers next."""
        arriving, taken = self._arriving[channel], list[Cause]()
        while len(taken) < count:
            begun, causes = arriving[0]
            offset = position + len(taken) - begun
            taken += causes[offset : offset + count - len(taken)]
            if position + len(taken) >= begun + len(causes):
                del arriving[0]
        return taken


def _body(chunk: Chunk) -> bytes:
    if chunk.kind == RECORDS:
        return bytes(chunk.body)
    try:
        return encode_records(chunk.body)
    except NotCarried:
        return b""


class TracedPlan(Plan):
    """A plan whose chains are traced."""

    passage: Passage

    def subtask_chain(self, subtask: int, ordinal: int = 0, fused: type[FusedChain] = FusedChain) -> OperatorChain:
        chain = super().subtask_chain(subtask, ordinal, TracedChain)
        name = str(self.subtasks.tasks[subtask].name)
        inputs = self.subtasks.inputs(TaskIndex(subtask))
        if isinstance(chain, TracedChain):
            chain.trace_into(self.passage, name, inputs)
        else:
            _trace_rows(chain, self.passage, inputs)
        return chain


def traced_plan(passage: Passage, pipeline: Pipeline, config: JobConfig) -> TracedPlan:
    """Return the plan of a pipeline with traced chains."""
    pipeline.check()
    planned = TracedPlan(pipeline, config, fuse(pipeline.nodes))
    planned.passage = passage
    passage.entries = {planned.topology.subtask_channel(c).id: c.id for c in planned.topology.channels}
    return planned


def _trace_rows(chain: OperatorChain, passage: Passage, inputs: Sequence[Channel]) -> None:
    """Replace `deliver` of a chain without operators, such as that of a sink, by one that passes causes on."""
    deliver, provenance = chain.deliver, passage.provenance

    def delivering(input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        causes, _ = passage.delivered(inputs[input], chunks, first)
        outputs = deliver(input, chunks, first, services)
        for _, chunk in outputs:
            whole = chunk.count == len(causes)
            passage.put(chunk, causes if whole else [_some_of(provenance, place, causes)] * chunk.count)
        return outputs

    place = provenance.operator(TracedOperator("", "sink", "sink", STATE))
    chain.deliver = delivering  # type: ignore[method-assign]


def _some_of(provenance: Provenance, operator: int, causes: Sequence[Cause]) -> Derivation:
    return Derivation(
        operator, len(provenance.events) - 1, "records", tuple(dict.fromkeys(causes)), until=len(provenance.cause_of)
    )


class TracedChain(FusedChain):
    """A fused chain in which a cause accompanies each record."""

    def trace_into(self, passage: Passage, subtask: str, inputs: Sequence[Channel]) -> None:
        """Begin to trace; called once, before the state is restored.

        Args:
            inputs: the channels between subtasks from which the chain reads.
        """
        self._passage = passage
        self._subtask = subtask
        self._channels = inputs
        self._traces: dict[int, StageTrace] = {}
        self._running: StageTrace | None = None
        """The stage that has just processed a batch, until its output is passed on."""
        self._causes: Sequence[Cause] = ()
        """The causes of the records that are passed to a stage next, and their elements if they were delivered."""
        self._elements: Sequence[int] = ()
        self._arrived: Sequence[Cause] = ()
        self._pending: dict[int, _Pending] = {}
        self._letter_causes: list[Cause] = []
        self._own = passage.provenance.operator(TracedOperator(subtask, subtask, "task", STATE))
        for branch in self._branches:
            branch.stage.traced = True
        failed = self._failures.failed

        def failing(operator: str, key: Any, index: int | None, record: Any, problem: Exception) -> None:
            failed(operator, key, index, record, problem)
            self._letter_causes.append(self._of_letter(operator, key, index))

        self._failures.failed = failing  # type: ignore[method-assign]

    def open(self) -> None:
        if not self._traces:  # the state has been restored
            for stage in self._stages:
                self._traces[id(stage)] = trace_of(stage, self._passage.provenance, self._subtask)
        super().open()

    def _of_letter(self, operator: str, key: Any, index: int | None) -> Cause:
        """Return the cause of a dead letter: the record that failed and, with state, those of its key."""
        known = index is not None and index < len(self._arrived)
        causes = (self._arrived[index or 0],) if known else tuple(self._arrived)
        trace = next((each for each in self._traces.values() if each.stateful and each.shown_as == operator), None)
        if trace is not None:
            return trace.of_letter(None if key is NO_KEY else key, causes)
        return causes[0] if known else _some_of(self._passage.provenance, self._own, causes)

    # Events.

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        self._arrived, self._elements = self._passage.delivered(self._channels[input], chunks, first)
        return super().deliver(input, chunks, first, services)

    def _begin(self, services: Services, input: int = -1, first: int = -1, origin_ns: int = 0) -> None:
        if input < 0:
            self._arrived, self._elements = (), ()
        super()._begin(services, input, first, origin_ns)

    def _end(self) -> list[Output]:
        outputs = super()._end()
        for trace in self._traces.values():
            trace.end()
        letters, self._letter_causes = self._letter_causes, []
        for ordinal, chunk in outputs:
            if letters and ordinal == self._dead_letters:
                whole = chunk.count == len(letters)
                some = _some_of(self._passage.provenance, self._own, letters)
                self._passage.put(chunk, letters if whole else [some] * chunk.count)
        return outputs

    # Records.

    def _run(self, branch: Branch, side: int, records: Any, keys: list[Any] | None) -> None:
        stage = branch.stage
        causes, elements = self._causes, self._elements
        if stage is self._root.stage:
            causes = self._arrived
        else:
            elements = ()
        count = len(records)
        if count != len(causes):
            causes, elements = [_some_of(self._passage.provenance, self._own, causes)] * count, ()
        trace = self._traces[id(stage)]
        self._active.operator = stage.name
        output = trace.run(side, records, keys, causes, elements)
        self._running = trace
        self._forward(branch, output)

    def _forward(self, branch: Branch, output: Any) -> None:
        stage, running = branch.stage, self._running
        self._running = None
        trace = self._traces[id(stage)]
        causes_of = trace.causes_of_event if running is None else trace.causes_of_run
        if branch.plain:
            self._causes = causes_of(output) if output else ()
            self._spread(branch, output)
            return
        if stage.aside:
            aside, stage.aside = stage.aside, {}
            for tag, side in branch.sides:
                records = aside.get(tag)
                self._causes = trace.causes_aside(records) if records else ()
                self._spread(side, records)
        if not stage.makes_marks:
            self._causes = causes_of(output) if output else ()
            self._spread(branch, output)
            return
        for records, mark in stage.pieces():
            self._causes = causes_of(records) if records else ()
            self._spread(branch, records)
            self._pass(branch, mark)

    def _spread(self, branch: Branch, records: Any) -> None:
        if not records:
            return
        causes = self._causes
        if branch.children:
            records = listed(records)
        branch.output = records
        if branch.shared:
            records = self._tracing.carried(branch, records)
            if not records:
                return
            refused = set(branch.stage.refused)
            causes = [cause for place, cause in enumerate(causes) if place not in refused]
        active = self._active
        if branch.routes:
            active.operator, active.keying = branch.stage.name, True
            for route in branch.routes:
                pending = self._pending.get(id(route))
                if pending is None:
                    pending = self._pending[id(route)] = _Pending(route, self._some)
                pending.add(records, causes, partial(self._tracing.unroutable, branch, route.target))
            active.keying = False
        readers = len(branch.routes) + len(branch.children)
        for child in branch.children:
            readers -= 1
            last = readers == 0 and not branch.routes
            own = records if last else copied(records, copy_containers)
            self._causes = causes
            self._run(child, branch.stage.side, own, branch.stage.keys)

    def _some(self, causes: Sequence[Cause]) -> Cause:
        return _some_of(self._passage.provenance, self._own, causes)

    def _drain(self, branch: Branch) -> None:
        for route in branch.routes:
            pending = self._pending.pop(id(route), None)
            for ordinal, records in route.drain():
                causes = [] if pending is None else pending.causes(ordinal, records)
                before = len(self._outputs)
                self._encode(branch, ordinal, records)
                self._attribute(self._outputs[before:], causes)

    def _attribute(self, outputs: Sequence[Output], causes: Sequence[Cause]) -> None:
        """Add the causes of the records of chunks; a record that cannot be carried has left gaps."""
        total, begun = sum(chunk.count for _, chunk in outputs), 0
        if total != len(causes):
            causes = [self._some(causes)] * total
        for _, chunk in outputs:
            self._passage.put(chunk, causes[begun : begun + chunk.count])
            begun += chunk.count


class _Pending:
    """The causes of the records that a route has collected in an event.

    Args:
        some: returns the cause of a record that comes from any of some causes.
    """

    def __init__(self, route: Route, some: Callable[[Sequence[Cause]], Cause]) -> None:
        self._route: Any = route
        self._some = some
        self._causes: dict[int, list[Cause]] = {}
        self._by_key: dict[Any, list[Cause]] = {}
        self._all: list[Cause] = []

    def add(self, records: Any, causes: Sequence[Cause], failed: Callable[[int, Any, Exception], None]) -> None:
        """Add records to the route."""
        route = self._route
        kind = type(route)
        self._all += causes
        if kind is TurnRoute:
            turn, count = route.turn, len(route._ordinals)
            for index, cause in enumerate(causes):
                self._to(route._ordinals[(turn + index) % count], (cause,))
            route.add(records, failed)
        elif kind is KeyedRoute:
            sizes = [len(bucket) for bucket in route._buckets]
            route.add(records, failed)
            fresh = [bucket[size:] for bucket, size in zip(route._buckets, sizes, strict=True)]
            self._sort(listed(records), causes, fresh)
        elif kind is StraightRoute:
            size = len(route._direct._batches)
            route.add(records, failed)
            sent = [each for batch in route._direct._batches[size:] for each in batch]
            if len(sent) == len(causes):
                self._to(route._ordinals[0], causes)
            else:
                self._sort(listed(records), causes, [sent])
        elif kind is CountedRoute:
            keys = keys_in(records, route._item)
            if not isinstance(keys, list):
                keys = [route._key_of(record) for record in listed(records)]
            for key, cause in zip(canonical_keys(keys), causes, strict=True):
                self._by_key.setdefault(key, []).append(cause)
            route.add(records, failed)
        else:
            route.add(records, failed)

    def _to(self, ordinal: int, causes: Sequence[Cause]) -> None:
        self._causes.setdefault(ordinal, []).extend(causes)

    def _sort(self, records: Sequence[Any], causes: Sequence[Cause], buckets: Sequence[Sequence[Any]]) -> None:
        """Find each record in the bucket to which it was added; one without a key is in none."""
        nexts = [0] * len(buckets)
        for record, cause in zip(records, causes, strict=True):
            for place, bucket in enumerate(buckets):
                if nexts[place] < len(bucket) and bucket[nexts[place]] is record:
                    nexts[place] += 1
                    self._to(self._route._ordinals[place], (cause,))
                    break

    def causes(self, ordinal: int, records: Records) -> Sequence[Cause]:
        """Return the causes of the records that the route sends to a channel."""
        kind = type(self._route)
        if kind in (DirectRoute, BroadcastRoute) and len(self._all) == len(records):
            return self._all
        if isinstance(records, Counted):
            return [self._some(self._by_key.get(key, self._all)) for key in records.keys]
        own = self._causes.get(ordinal, ())
        return own if len(own) == len(records) else [self._some(self._all)] * len(records)
