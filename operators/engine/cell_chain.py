"""The chain of a cell: one task that performs several parts of the plan, each of which has a chain of its own (0036).

An event that a part receives runs to its end through all parts downstream of it, in topological order, before the next
event begins. What happens inside is therefore a function of the event, and nothing of it is logged or kept for a
replay: both ends of a channel inside a cell are lost together (D20).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain as concatenated
from itertools import islice
from typing import Any, overload

from causal.errors import CorruptData, PeerViolation, invariant
from causal.ports import Output, Request, Services, SnapshotJob
from causal.records.batch import END, IDLE_NS, WATERMARK, Chunk, end, stamp_of
from operators.engine.operator_chain import OperatorChain
from operators.stage.stages import Stage
from operators.state.keyed_tables import KEYS_AT_ONCE
from operators.state.snapshot_parts import cell_in, cell_part, increment_part, is_increment


@dataclass(frozen=True, slots=True)
class Inside:
    """The other end of a channel inside the cell: an input of a later part."""

    place: int
    input: int


@dataclass(frozen=True, slots=True)
class Outside:
    """An output of the cell.

    Attributes:
        ends: whether the cell reports the end of this output as soon as the part has ended.
    """

    ordinal: int
    ends: bool


@dataclass(slots=True)
class Part:
    """One part of a cell.

    Attributes:
        outputs: the other end of each output of the part's chain, by ordinal.
        firsts: the number of elements that each input inside the cell has delivered.
        ended: whether each input has ended.
        over: whether the part has processed all of its input.
        mark_ns: the latest watermark that the part has sent; None if it has sent none or has become idle.
        waiting: the chunks to be delivered in this event, each with its input.
    """

    name: str
    chain: OperatorChain
    outputs: Sequence[Inside | Outside]
    firsts: list[int]
    ended: list[bool]
    over: bool = False
    mark_ns: int | None = None
    waiting: list[tuple[int, Chunk]] = field(default_factory=list)


class CellChain(OperatorChain):
    """The chain of a cell.

    Args:
        parts: in topological order.
        inputs: the part, by its place, and its input, for each input of the cell.
    """

    def __init__(self, parts: Sequence[Part], inputs: Sequence[tuple[int, int]]) -> None:
        self._parts = parts
        self._inputs = inputs
        self._outputs: list[Output] = []
        self._asking = {stage.ordinal: place for place, part in enumerate(parts) for stage in part.chain.stages}

    @property
    def stages(self) -> Sequence[Stage]:
        return [stage for part in self._parts for stage in part.chain.stages]

    def open(self) -> None:
        for part in self._parts:
            part.chain.open()

    # Events.

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        place, own = self._inputs[input]
        self._send(place, self._parts[place].chain.deliver(own, chunks, first, services))
        return self._run(place + 1, services)

    def ended(self, input: int, services: Services) -> list[Output]:
        place, own = self._inputs[input]
        self._end(place, own, services)
        return self._run(place + 1, services)

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        for place, part in enumerate(self._parts):
            self._deliver(place, services)
            next_ns = part.chain.next_timer_ns()
            if next_ns is not None and next_ns <= due_ns:
                self._send(place, part.chain.fire(due_ns, services))
        return self._run(len(self._parts), services)

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        place = self._asking.get(operator)
        if place is None:
            raise PeerViolation(f"an answer arrived for operator {operator}, which the cell does not perform")
        self._send(place, self._parts[place].chain.answer(operator, number, body, services))
        self._finish(place, services)
        return self._run(place + 1, services)

    def finish(self, services: Services) -> list[Output]:
        """Do nothing, because each part has finished after the end of its own inputs."""
        invariant(all(part.over for part in self._parts), "each part of a cell ends before the cell")
        return []

    def _run(self, place: int, services: Services) -> list[Output]:
        """Deliver all that parts have sent, from the part at `place` on; return the output of the event."""
        for each in range(place, len(self._parts)):
            self._deliver(each, services)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _deliver(self, place: int, services: Services) -> None:
        """Deliver the waiting chunks of a part; consecutive chunks of one input form a batch, as in a frame."""
        part = self._parts[place]
        waiting, part.waiting = part.waiting, []
        start = 0
        while start < len(waiting):
            input, chunk = waiting[start]
            if chunk.kind == END:
                self._end(place, input, services)
                start += 1
                continue
            chunks = [chunk]
            start += 1
            while start < len(waiting) and chunks[-1].kind != WATERMARK:
                following, chunk = waiting[start]
                if following != input or chunk.kind == END:
                    break
                chunks.append(chunk)
                start += 1
            first = part.firsts[input]
            part.firsts[input] = first + sum(each.count for each in chunks)
            self._send(place, part.chain.deliver(input, chunks, first, services))

    def _send(self, place: int, outputs: Iterable[Output]) -> None:
        part = self._parts[place]
        for ordinal, chunk in outputs:
            other = part.outputs[ordinal]
            if chunk.kind == WATERMARK:
                stamp = stamp_of(chunk)
                part.mark_ns = None if stamp == IDLE_NS else stamp
            if isinstance(other, Inside):
                self._parts[other.place].waiting.append((other.input, chunk))
            else:
                self._outputs.append((other.ordinal, chunk))

    def _end(self, place: int, input: int, services: Services) -> None:
        part = self._parts[place]
        part.ended[input] = True
        self._send(place, part.chain.ended(input, services))
        self._finish(place, services)

    def _finish(self, place: int, services: Services) -> None:
        """Finish a part once all of its inputs have ended and no request is unanswered."""
        part = self._parts[place]
        if part.over or not all(part.ended) or part.chain.waiting():
            return
        part.over, part.mark_ns = True, None
        self._send(place, part.chain.finish(services))
        for other in part.outputs:
            if isinstance(other, Inside):
                self._parts[other.place].waiting.append((other.input, end()))
            elif other.ends:
                self._outputs.append((other.ordinal, end()))

    # Questions.

    def ended_outputs(self) -> frozenset[int]:
        return frozenset(
            each.ordinal
            for part in self._parts
            if part.over
            for each in part.outputs
            if isinstance(each, Outside) and each.ends
        )

    def mark_ns(self, input: int) -> int | None:
        return self._parts[self._inputs[input][0]].mark_ns

    def next_timer_ns(self) -> int | None:
        return min((at for part in self._parts if (at := part.chain.next_timer_ns()) is not None), default=None)

    def asked(self) -> list[Request]:
        return [request for part in self._parts for request in part.chain.asked()]

    def outstanding(self) -> list[Request]:
        return [request for part in self._parts for request in part.chain.outstanding()]

    def waiting(self) -> bool:
        return any(part.chain.waiting() for part in self._parts)

    def full(self) -> bool:
        return any(part.chain.full() for part in self._parts)

    def counts(self) -> dict[str, dict[str, int]]:
        return {name: reasons for part in self._parts for name, reasons in part.chain.counts().items()}

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        return {name: state for part in self._parts for name, state in part.chain.inspect(operator, key).items()}

    # Snapshots.

    def snapshot(self, full: bool, behind: str = "") -> CellSnapshot:
        increment = b""
        if behind:
            changed = self._frozen(False)
            while not changed.step(KEYS_AT_ONCE):
                continue
            increment = increment_part(behind, list(changed.parts()))
        return self._frozen(full, increment)

    def _frozen(self, full: bool, increment: bytes = b"") -> CellSnapshot:
        progress = {part.name: [part.firsts[:], part.ended[:], part.over] for part in self._parts}
        jobs = {part.name: part.chain.snapshot(full) for part in self._parts}
        return CellSnapshot(progress, jobs, increment)

    def restore(self, parts: Iterable[bytes]) -> None:
        for _ in self.restoring(parts):
            pass

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        for part, own in self._restored(parts):
            yield from part.chain.restoring(own)

    def restore_groups(self, parts: Iterable[bytes], groups: Collection[int]) -> None:
        for part, own in self._restored(parts):
            part.chain.restore_groups(own, groups)

    def _restored(self, parts: Iterable[bytes]) -> Iterator[tuple[Part, Iterator[bytes]]]:
        """Restore the progress of each part, and yield the part with the parts of its snapshot."""
        known = {part.name: part for part in self._parts}
        for name, (firsts, ended, over), own in each_part_of_cell(parts):
            part = known.get(name)
            if part is None or len(part.firsts) != len(firsts):
                raise CorruptData(
                    f"the snapshot of a cell contains part {name}, which this pipeline performs in another way; resume "
                    "with the pipeline that wrote it"
                )
            part.firsts, part.ended, part.over = list(firsts), list(ended), over
            yield part, own

    def release(self) -> None:
        for part in self._parts:
            part.chain.release()


Progress = tuple[list[int], list[bool], bool]
"""The elements that each input of a part has delivered, the inputs that have ended, and whether the part is over."""


def each_part_of_cell(parts: Iterable[bytes]) -> Iterator[tuple[str, Progress, Iterator[bytes]]]:
    """Yield the name, the progress and the snapshot of each part of a cell, from one snapshot of the cell.

    Each snapshot must be read to its end before the next one is requested.

    Raises:
        CorruptData: the parts are not those of a cell.
    """
    left = iter(parts)
    first = next(left, b"")
    if first and is_increment(first):
        first = next(left, b"")
    content = cell_in(first) if first else None
    if content is None:
        raise CorruptData("the snapshot of a cell lacks its first part; it was written by another version")
    for name, size, progress in content["parts"]:
        own = islice(left, size)
        yield name, progress, own
        for _ in own:
            pass


def of_cell(snapshots: Sequence[tuple[str, Progress, Sequence[bytes]]]) -> list[bytes]:
    """Return the snapshot of a cell that consists of the snapshots of its parts."""
    return [_first(snapshots), *concatenated.from_iterable(parts for _, _, parts in snapshots)]


def _first(snapshots: Sequence[tuple[str, Progress, Sequence[bytes]]]) -> bytes:
    return cell_part({"parts": [[name, len(parts), list(progress)] for name, progress, parts in snapshots]})


class CellSnapshot:
    """The snapshot of a cell (`causal.ports.SnapshotJob`), which encodes the state of one part after the other."""

    def __init__(self, progress: dict[str, Any], jobs: dict[str, SnapshotJob], increment: bytes) -> None:
        self._progress = progress
        self._jobs = jobs
        self._left = list(jobs.values())
        self._increment = increment
        self.full = all(job.full for job in jobs.values())

    def step(self, keys_max: int) -> bool:
        while self._left:
            if not self._left[0].step(keys_max):
                return False
            del self._left[0]
        return True

    def parts(self, *before: bytes) -> Sequence[bytes]:
        invariant(not self._left, "parts are there when every step is done")
        snapshots = [(name, self._progress[name], job.parts()) for name, job in self._jobs.items()]
        first = [*before, *filter(None, (self._increment,)), _first(snapshots)]
        return _Joined([first, *(parts for _, _, parts in snapshots)])


class _Joined(Sequence[bytes]):
    """Several sequences of parts as one; each part is assembled on access."""

    def __init__(self, sequences: Sequence[Sequence[bytes]]) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        return sum(map(len, self._sequences))

    def __iter__(self) -> Iterator[bytes]:
        return concatenated.from_iterable(self._sequences)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        for sequence in self._sequences:
            if place < len(sequence):
                return sequence[place]
            place -= len(sequence)
        raise IndexError(place)
