"""A pipeline in one process, whose chains are traced: batches, deliveries and timers in an order that a seed draws.

Each record of a source has an id of its own, and operators carry ids on, so what a row comes from is known without the
code that is tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Output
from causal.records.batch import END, LISTED, ROWS, WATERMARK, Chunk, end
from causal.records.values import decode, encode
from causal.topology import Channel
from operators import Pipeline
from operators.engine.plan import Plan
from operators.replay.performance import rows_in
from operators.replay.provenance import Cause, Event, Origins, Provenance
from operators.replay.traced_chain import Passage, traced_plan
from tests.unit.operators.scene import Services, config


class Row(NamedTuple):
    """A row, as the JSON document of its sink, and its cause."""

    account: str
    document: Any
    cause: Cause


class _AllRows(Passage):
    """Keeps the cause of every row."""

    def __init__(self, run: TracedRun) -> None:
        super().__init__()
        self._run = run

    def emitted(self, channel: Channel, position: int, chunk: Chunk) -> None:
        super().emitted(channel, position, chunk)
        if channel.target == OUTSIDE and chunk.kind == ROWS and not channel.carries_requests:
            self._run.add_rows(channel, chunk, self._chunks[id(chunk)][1])


class TracedRun:
    """A run of a pipeline to its end.

    Args:
        untraced: the records of each source after which the run is traced, from a snapshot, as in a replay that begins
            at a checkpoint.
    """

    def __init__(
        self, pipeline: Pipeline, sources: Mapping[str, Sequence[Any]], seed: int, untraced: int = 0, **settings: Any
    ) -> None:
        self.rows: list[Row] = []
        self._chance = Random(seed)
        self._passage = _AllRows(self)
        self.plan: Plan = traced_plan(self._passage, pipeline, config(**settings))
        topology = self.plan.topology
        self._chains = {task.index: self.plan.chain(task.index) for task in topology.tasks}
        self._services = Services()
        self._queues: dict[int, list[Chunk]] = {channel.id: [] for channel in topology.channels}
        self._delivered = dict.fromkeys(self._queues, 0)
        self._sent = dict.fromkeys(self._queues, 0)
        self._open = {task.index: {c.id for c in topology.inputs(task.index)} for task in topology.tasks}
        self._over: set[int] = set()
        self._source_records: dict[int, Sequence[Any]] = {}
        self._requests: list[tuple[TaskIndex, Any]] = []
        for channel in topology.channels:
            if channel.source == OUTSIDE:
                name, _ = self.plan.source_of(channel)
                self._source_records[channel.id] = sources[name]
        if untraced:
            self._fill(0, untraced)
            while any(self._queues.values()):
                self._step()
            self._begin_again(pipeline, **settings)
        self._fill(untraced, None)
        while self._step():
            pass

    def _begin_again(self, pipeline: Pipeline, **settings: Any) -> None:
        """Continue with new chains that have the state of the present ones."""
        parts = {}
        for task, chain in self._chains.items():
            job = chain.snapshot(True)
            while not job.step(1000):
                pass
            parts[task] = list(job.parts())
        self.rows.clear()
        self._passage = _AllRows(self)
        self.plan = traced_plan(self._passage, pipeline, config(**settings))
        self._chains = {task: self.plan.chain(task) for task in self._chains}
        for task, chain in self._chains.items():
            chain.restore(parts[task])
        self._requests = [(task, each) for task, chain in self._chains.items() for each in chain.outstanding()]

    @property
    def provenance(self) -> Provenance:
        return self._passage.provenance

    def origins(self, row: Row) -> tuple[set[Any], Origins]:
        """Return the ids of the records that a row comes from, and its origins."""
        origins = Origins(self.provenance, row.cause)
        ids = set()
        for element in origins.inputs:
            channel, position = self.provenance.place(element)
            ids.add(self._source_records[channel][position]["id"])
        return ids, origins

    def _fill(self, start: int, stop: int | None) -> None:
        """Put records of all sources into the queues; without `stop`, all that are left, and the end."""
        for channel, records in self._source_records.items():
            place, last = start, len(records) if stop is None else stop
            while place < last:
                some = list(records[place : min(last, place + self._chance.randint(1, 7))])
                self._queues[channel].append(Chunk(LISTED, len(some), decode(encode(some))))
                place += len(some)
            if stop is None:
                self._queues[channel].append(end())

    def _step(self) -> bool:
        """Perform one event; return whether there was one."""
        waiting = [channel for channel, queue in self._queues.items() if queue]
        left = [(task, chain) for task, chain in self._chains.items() if task not in self._over]
        due = [task for task, chain in left if chain.next_timer_ns() is not None]
        if self._requests and (not waiting or self._chance.random() < 0.3):
            task, request = self._requests.pop(self._chance.randrange(len(self._requests)))
            record, _ = decode(request.body)
            self._event("answer")
            chain = self._chains[task]
            answer = encode([True, {"seen": record["id"] if isinstance(record, dict) else 0}])
            self._emit(task, chain.answer(request.operator, request.number, answer, self._services))
            self._finish(task)
            return True
        if due and (not waiting or self._chance.random() < 0.2):
            task = self._chance.choice(due)
            due_ns = self._chains[task].next_timer_ns() or 0
            self._services.clock_ns = max(self._services.clock_ns, due_ns)
            self._event("timer")
            self._emit(task, self._chains[task].fire(self._services.clock_ns, self._services))
            return True
        if not waiting:
            return False
        self._deliver(self._chance.choice(waiting))
        return True

    def _deliver(self, channel: int) -> None:
        topology, queue = self.plan.topology, self._queues[channel]
        task = topology.channels[channel].target
        input = [int(each.id) for each in topology.inputs(task)].index(channel)
        chain, first = self._chains[task], self._delivered[channel]
        self._event("order")
        if queue[0].kind == END:
            del queue[0]
            self._open[task].discard(channel)
            self._emit(task, chain.ended(input, self._services))
            self._finish(task)
            return
        taken: list[Chunk] = []
        for _ in range(self._chance.randint(1, 3)):
            if not queue or queue[0].kind == END:
                break
            taken.append(queue.pop(0))
            if taken[-1].kind == WATERMARK:
                break
        self._delivered[channel] += sum(chunk.count for chunk in taken)
        self._emit(task, chain.deliver(input, taken, first, self._services))

    def _event(self, kind: str) -> None:
        self._passage.begin(Event(0, "", 0, kind, 0))

    def _finish(self, task: TaskIndex) -> None:
        chain = self._chains[task]
        if self._open[task] or chain.waiting() or task in self._over:
            return
        self._over.add(task)
        self._event("end")
        self._emit(task, chain.finish(self._services))
        ended = chain.ended_outputs()
        for ordinal, channel in enumerate(self.plan.topology.outputs(task)):
            if ordinal not in ended and channel.target != OUTSIDE:
                self._queues[channel.id].append(end())

    def _emit(self, task: TaskIndex, outputs: Sequence[Output]) -> None:
        for ordinal, chunk in outputs:
            channel = self.plan.topology.outputs(task)[ordinal]
            position = self._sent[channel.id]
            self._sent[channel.id] += chunk.count
            self._passage.emitted(channel, position, chunk)
            if channel.target != OUTSIDE:
                self._queues[channel.id].append(chunk)
        self._requests += [(task, request) for request in self._chains[task].asked()]

    def add_rows(self, channel: Channel, chunk: Chunk, causes: Sequence[Cause]) -> None:
        """Add rows that leave for a sink."""
        account = self.plan.topology.account(channel)
        documents = rows_in(self.plan.sink_of(channel), chunk)
        self.rows += [Row(account, each, cause) for each, cause in zip(documents, causes, strict=True)]
