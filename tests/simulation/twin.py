"""The failure-free twin: an independent reading of the tasks' final determinant logs.

It is not a task protocol: no network, no epochs under way, no recovery. Task by task, upstream first, it reads the log
("next n of channel c", "timers fire now", an answer), pulls the elements from what the twin of the sender put out, runs
a fresh chain, and so says which rows the sinks must hold if every determinant happened exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from causal.determinants import (
    Answer,
    Barrier,
    Call,
    Clock,
    Determinant,
    DeterminantCodec,
    Order,
    Random,
    Run,
    Timer,
    User,
    Window,
)  # fmt: skip
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Chain
from causal.records import batch
from causal.records.batch import Chunk
from causal.topology import Topology
from tests.simulation.peers import Violated

Kind = TypeVar("Kind")

Logs = Mapping[tuple[int, int], bytes]
"""(task, epoch) → its final log."""


@dataclass(slots=True)
class Requests:
    """Requests of a twin, and the answers that its logs have.

    Attributes:
        asked: bodies of all requests.
        answered: (body of the request, answer).
    """

    asked: list[bytes] = field(default_factory=list)
    answered: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    """One task's log of one epoch, determinant by determinant."""

    task: str
    epoch: int
    log: bytes
    place: int = 0
    codec: DeterminantCodec = field(default_factory=DeterminantCodec)

    def next(self) -> Determinant | None:
        if self.place == len(self.log):
            return None
        determinant, self.place = self.codec.decode(self.log, self.place)
        return determinant


class _Answers:
    """Services that read the log."""

    def __init__(self, twin: _TaskTwin) -> None:
        self._twin = twin
        self._seeds: dict[int, bytes] = {}

    def now_ns(self) -> int:
        return self._twin.answer(Clock).time_ns

    def seed(self) -> bytes:
        epoch = self._twin.epoch
        if epoch not in self._seeds:
            self._seeds[epoch] = self._twin.answer(Random).seed
        return self._seeds[epoch]

    def epoch(self) -> int:
        return self._twin.epoch

    def replaying(self) -> bool:
        return True

    def call(self, ask: Callable[[], bytes]) -> bytes:
        return self._twin.answer(Call).answer

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        return self._twin.answer(User).value

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        window = self._twin.answer(Window)
        if window != Window(operator, end_ns, tuple(intervals)):
            raise Violated(f"twin: {self._twin.name} fires another window than its log says")


class _TaskTwin:
    """One task, read from its log."""

    def __init__(
        self, name: str, chain: Chain, logs: dict[int, bytes], inputs: list[list[Chunk]], outputs: int, ordered: bool,
        requests: Requests,
    ) -> None:  # fmt: skip
        self.name = name
        self._requests = requests
        self._waiting: dict[tuple[int, int], bytes] = {}
        """Bodies of the requests that have no answer yet."""
        self._ordered = ordered
        self._marks: list[int | None] = [None] * len(inputs)
        self._idle = [False] * len(inputs)
        self._finished = False
        self.epoch = 0
        self._chain = chain
        self._logs = logs
        self._inputs = [list(chunks) for chunks in inputs]
        self._places = [0] * len(inputs)
        self._blocked = [False] * len(inputs)
        self._ended = [False] * len(inputs)
        self.emitted: list[list[Chunk]] = [[] for _ in range(outputs)]
        self._reader = _Reader(name, 0, logs.get(0, b""))
        self._services = _Answers(self)

    def answer(self, kind: type[Kind]) -> Kind:
        determinant = self._reader.next()
        if type(determinant) is not kind:
            raise Violated(
                f"twin: {self.name}, epoch {self.epoch}: {kind.__name__} is asked for, the log has {determinant}"
            )
        return determinant

    def run(self, sources: bool) -> None:
        while True:
            determinant = self._reader.next()
            if determinant is None and self._ordered and self._by_rule():
                continue
            if determinant is None:
                if self.epoch + 1 not in self._logs and not any(e > self.epoch for e in self._logs):
                    break
                raise Violated(f"twin: {self.name}: epoch {self.epoch} has no barrier at its end, and later ones exist")
            if isinstance(determinant, Order):
                self._order(determinant, sources)
            elif isinstance(determinant, Timer):
                self._emit(self._chain.fire(determinant.due_ns, self._services))
            elif isinstance(determinant, Barrier):
                self._barrier(determinant.epoch)
            elif isinstance(determinant, Answer):
                self._answered(determinant)
            elif isinstance(determinant, Run) and self._ordered:
                for _ in range(determinant.count):
                    if not self._by_rule():
                        raise Violated(f"twin: {self.name}: a run is longer than what its inputs bring")
            else:
                raise Violated(f"twin: {self.name}: it did not ask for {determinant}")
        left = [self._left(place) for place in range(len(self._inputs))]
        if any(left):
            raise Violated(f"twin: {self.name} never consumed {left} elements of its inputs")
        if self._waiting:
            raise Violated(f"requests: {len(self._waiting)} of {self.name} were never answered")

    def _answered(self, answer: Answer) -> None:
        body = self._waiting.pop((answer.operator, answer.number), None)
        if body is None:
            raise Violated(f"requests: {self.name} has an answer to {answer.number}, which does not wait for one")
        self._requests.answered.append((body, answer.body))
        self._emit(self._chain.answer(answer.operator, answer.number, answer.body, self._services))
        self._finish()

    def _left(self, input: int) -> int:
        rest = self._inputs[input][self._places[input] :]
        return sum(chunk.count for chunk in rest if chunk.kind != batch.BARRIER)

    def _by_rule(self) -> bool:
        """Return one chunk of the input that is furthest behind; false when that has nothing (0009.5, written
        again).
        """
        behind: list[tuple[bool, float, int]] = []
        for place, mark in enumerate(self._marks):
            if not self._blocked[place] and not self._idle[place]:
                behind.append((self._ended[place], float("-inf") if mark is None else mark, place))
        if not behind:
            return False
        place = min(behind)[2]
        if self._places[place] == len(self._inputs[place]):
            return False
        self._order(Order(place, self._inputs[place][self._places[place]].count), False)
        return True

    def _progress(self, input: int, taken: Sequence[Chunk]) -> None:
        if taken[0].kind == batch.BARRIER:
            return
        self._idle[input] = False
        if taken[-1].kind == batch.WATERMARK:
            stamp = batch.stamp_of(taken[-1])
            self._idle[input] = stamp == batch.IDLE_NS
            self._marks[input] = self._marks[input] if self._idle[input] else stamp

    def _finish(self) -> None:
        if self._finished or self._chain.waiting() or not all(self._ended):
            return
        self._finished = True
        self._emit(self._chain.finish(self._services))
        ended = self._chain.ended_outputs()
        for ordinal, output in enumerate(self.emitted):
            if ordinal not in ended:
                output.append(batch.end())

    def _order(self, order: Order, sources: bool) -> None:
        taken = self._take(order.input, order.count)
        self._progress(order.input, taken)
        kind = taken[0].kind
        if kind == batch.BARRIER:
            self._blocked[order.input] = True
            if all(self._blocked):
                self._barrier(batch.stamp_of(taken[0]))
        elif kind == batch.END:
            self._ended[order.input] = True
            self._emit(self._chain.ended(order.input, self._services))
            self._finish()
        else:
            self._emit(self._chain.deliver(order.input, taken, 0, self._services))

    def _take(self, input: int, count: int) -> list[Chunk]:
        if self._blocked[input]:
            raise Violated(f"twin: {self.name} delivered from input {input} past a barrier that was not aligned")
        taken: list[Chunk] = []
        queue = self._inputs[input]
        while count:
            if self._places[input] == len(queue):
                raise Violated(f"twin: {self.name}: its log has more elements of input {input} than were put out")
            chunk = queue[self._places[input]]
            if chunk.count > count:
                body = chunk.body if chunk.kind == batch.LISTED else batch.decode_records(chunk.body)
                queue[self._places[input]] = Chunk(batch.LISTED, chunk.count - count, body[count:])
                taken.append(Chunk(batch.LISTED, count, body[:count]))
                return taken
            self._places[input] += 1
            taken.append(chunk)
            count -= chunk.count
        return taken

    def _barrier(self, epoch: int) -> None:
        if self._reader.next() is not None or epoch != self.epoch + 1:
            raise Violated(f"twin: {self.name}: barrier {epoch} in epoch {self.epoch}, whose log continues")
        for output in self.emitted:
            output.append(batch.barrier(epoch))
        self._blocked = [False] * len(self._blocked)
        self.epoch = epoch
        self._reader = _Reader(self.name, epoch, self._logs.get(epoch, b""))

    def _emit(self, outputs: Sequence[tuple[int, Chunk]]) -> None:
        for ordinal, chunk in outputs:
            self.emitted[ordinal].append(chunk)
        for request in self._chain.asked():
            self._requests.asked.append(request.body)
            self._waiting[request.operator, request.number] = request.body


def rows_of_twin(
    topology: Topology, logs: Logs, chain: Callable[[int], Chain], source: Callable[[int], list[object]]
) -> tuple[dict[int, list[bytes]], Requests]:
    """Return the rows that each sink's channel must hold, bundle by bundle of the twin's own, and what was asked.

    Args:
        source: all records of a partition's channel.

    Raises:
        Violated: the logs do not describe an execution.
    """
    elements: dict[int, list[Chunk]] = {}
    requests = Requests()
    for channel in topology.channels:
        if channel.source == OUTSIDE:
            records = source(channel.id)
            elements[channel.id] = [Chunk(batch.LISTED, len(records), records)] * bool(records) + [batch.end()]
    for task in topology.tasks:
        inputs = [elements[channel.id] for channel in topology.inputs(TaskIndex(task.index))]
        outputs = topology.outputs(TaskIndex(task.index))
        own = {epoch: log for (owner, epoch), log in logs.items() if owner == task.index}
        twin = _TaskTwin(task.name, chain(task.index), own, inputs, len(outputs), task.ordered, requests)
        twin.run(topology.is_source(TaskIndex(task.index)))
        for channel, chunks in zip(outputs, twin.emitted, strict=True):
            elements[channel.id] = chunks
    rows: dict[int, list[bytes]] = {
        channel.id: [chunk.body for chunk in elements[channel.id] if chunk.kind == batch.ROWS]
        for channel in topology.channels
        if channel.target == OUTSIDE
    }
    return rows, requests
