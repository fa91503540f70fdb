"""The chain of a cell: one task that performs several subtasks, each of which has a chain of its own (0036).

An event that a subtask receives runs to its end through all subtasks downstream of it, in topological order, before the
next event begins. What happens inside is therefore a function of the event, and nothing of it is logged or kept for a
replay: both ends of a channel inside a cell are lost together (D20).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as concatenated
from itertools import islice
from typing import Any

from causal.errors import CorruptData, PeerViolation, invariant
from causal.ports import MergeRules, Output, Request, Services, SnapshotJob
from causal.records.batch import END, IDLE_NS, WATERMARK, Chunk, end, stamp_of
from causal.topology import LETTER_TASK
from operators.engine.operator_chain import OperatorChain
from operators.stage.stages import Stage
from operators.state.snapshot_parts import LazyParts, cell_in, cell_part, increment_from, is_increment


@dataclass(frozen=True, slots=True)
class Inside:
    """The other end of a channel inside the cell: an input of a later member."""

    place: int
    input: int


@dataclass(frozen=True, slots=True)
class Outside:
    """An output of the cell.

    Attributes:
        ends: whether the cell reports the end of this output as soon as the member has ended.
    """

    ordinal: int
    ends: bool


@dataclass(slots=True)
class Member:
    """One member of a cell.

    Attributes:
        outputs: the other end of each output of the member's chain, by ordinal.
        firsts: the number of elements that each input inside the cell has delivered.
        ended: whether each input has ended.
        over: whether the member has processed all of its input.
        mark_ns: the latest watermark that the member has sent; None if it has sent none or has become idle.
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
        members: in topological order.
        inputs: the member, by its place, and its input, for each input of the cell.
    """

    def __init__(self, members: Sequence[Member], inputs: Sequence[tuple[int, int]]) -> None:
        self._members = members
        self._inputs = inputs
        self._outputs: list[Output] = []
        self._asking = {stage.ordinal: place for place, member in enumerate(members) for stage in member.chain.stages}

    @property
    def stages(self) -> Sequence[Stage]:
        return [stage for member in self._members for stage in member.chain.stages]

    def open(self) -> None:
        for member in self._members:
            member.chain.open()

    # Events.

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        place, own = self._inputs[input]
        self._send(place, self._members[place].chain.deliver(own, chunks, first, services))
        return self._run(place + 1, services)

    def ended(self, input: int, services: Services) -> list[Output]:
        place, own = self._inputs[input]
        self._end(place, own, services)
        return self._run(place + 1, services)

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        for place, member in enumerate(self._members):
            self._deliver(place, services)
            next_ns = member.chain.next_timer_ns()
            if next_ns is not None and next_ns <= due_ns:
                self._send(place, member.chain.fire(due_ns, services))
        return self._run(len(self._members), services)

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        place = self._asking.get(operator)
        if place is None:
            raise PeerViolation(f"an answer arrived for operator {operator}, which the cell does not perform")
        self._send(place, self._members[place].chain.answer(operator, number, body, services))
        self._finish(place, services)
        return self._run(place + 1, services)

    def finish(self, services: Services) -> list[Output]:
        """Do nothing, because each member has finished after the end of its own inputs."""
        invariant(all(member.over for member in self._members), "each member of a cell ends before the cell")
        return []

    def _run(self, place: int, services: Services) -> list[Output]:
        """Deliver all that members have sent, from the member at `place` on; return the output of the event."""
        for each in range(place, len(self._members)):
            self._deliver(each, services)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _deliver(self, place: int, services: Services) -> None:
        """Deliver the waiting chunks of a member; consecutive chunks of one input form a batch, as in a frame."""
        member = self._members[place]
        waiting, member.waiting = member.waiting, []
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
            first = member.firsts[input]
            member.firsts[input] = first + sum(each.count for each in chunks)
            self._send(place, member.chain.deliver(input, chunks, first, services))

    def _send(self, place: int, outputs: Iterable[Output]) -> None:
        member = self._members[place]
        for ordinal, chunk in outputs:
            other = member.outputs[ordinal]
            if chunk.kind == WATERMARK:
                stamp = stamp_of(chunk)
                member.mark_ns = None if stamp == IDLE_NS else stamp
            if isinstance(other, Inside):
                self._members[other.place].waiting.append((other.input, chunk))
            else:
                self._outputs.append((other.ordinal, chunk))

    def _end(self, place: int, input: int, services: Services) -> None:
        member = self._members[place]
        member.ended[input] = True
        self._send(place, member.chain.ended(input, services))
        self._finish(place, services)

    def _finish(self, place: int, services: Services) -> None:
        """Finish a member once all of its inputs have ended and no request is unanswered."""
        member = self._members[place]
        if member.over or not all(member.ended) or member.chain.waiting():
            return
        member.over, member.mark_ns = True, None
        self._send(place, member.chain.finish(services))
        for other in member.outputs:
            if isinstance(other, Inside):
                self._members[other.place].waiting.append((other.input, end()))
            elif other.ends:
                self._outputs.append((other.ordinal, end()))

    # Questions.

    def ended_outputs(self) -> frozenset[int]:
        return frozenset(
            each.ordinal
            for member in self._members
            if member.over
            for each in member.outputs
            if isinstance(each, Outside) and each.ends
        )

    def mark_ns(self, input: int) -> int | None:
        return self._members[self._inputs[input][0]].mark_ns

    def next_timer_ns(self) -> int | None:
        return min((at for member in self._members if (at := member.chain.next_timer_ns()) is not None), default=None)

    def asked(self) -> list[Request]:
        return [request for member in self._members for request in member.chain.asked()]

    def outstanding(self) -> list[Request]:
        return [request for member in self._members for request in member.chain.outstanding()]

    def waiting(self) -> bool:
        return any(member.chain.waiting() for member in self._members)

    def full(self) -> bool:
        return any(member.chain.full() for member in self._members)

    def counts(self) -> dict[str, dict[str, int]]:
        return {name: reasons for member in self._members for name, reasons in member.chain.counts().items()}

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        return {name: state for member in self._members for name, state in member.chain.inspect(operator, key).items()}

    # Snapshots.

    def snapshot(self, full: bool, behind: str = "") -> CellSnapshot:
        increment = increment_from(behind, self._frozen(False)) if behind else b""
        return self._frozen(full, increment)

    def merge_rules(self) -> MergeRules:
        rules: dict[str, Mapping[str, str]] = {}
        for member in self._members:
            of_member = member.chain.merge_rules()
            if of_member is None:
                return None
            rules[member.name] = of_member[""]
        return rules

    def _frozen(self, full: bool, increment: bytes = b"") -> CellSnapshot:
        progress = {member.name: [member.firsts[:], member.ended[:], member.over] for member in self._members}
        jobs = {member.name: member.chain.snapshot(full) for member in self._members}
        return CellSnapshot(progress, jobs, increment)

    def restore(self, parts: Iterable[bytes]) -> None:
        for _ in self.restoring(parts):
            pass

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        for member, own in self._restored(parts):
            yield from member.chain.restoring(own)

    def restore_groups(self, parts: Iterable[bytes], groups: Collection[int]) -> None:
        for member, own in self._restored(parts):
            member.chain.restore_groups(own, groups)

    def _restored(self, parts: Iterable[bytes]) -> Iterator[tuple[Member, Iterator[bytes]]]:
        """Restore the progress of each member, and yield the member with the parts of its snapshot."""
        known = {member.name: member for member in self._members}
        for name, (firsts, ended, over), own in each_subtask_of_cell(parts):
            member = known.get(name)
            if member is None and name == LETTER_TASK:
                continue  # an interrupted command has added it
            if member is None or len(member.firsts) != len(firsts):
                raise CorruptData(
                    f"the snapshot of a cell contains {name}, which this pipeline does not perform in this way; resume "
                    "with the pipeline that wrote it"
                )
            member.firsts, member.ended, member.over = list(firsts), list(ended), over
            yield member, own

    def release(self) -> None:
        for member in self._members:
            member.chain.release()


Progress = tuple[list[int], list[bool], bool]
"""The elements that each input of a subtask has delivered, the inputs that have ended, and whether it is over."""


def each_subtask_of_cell(parts: Iterable[bytes]) -> Iterator[tuple[str, Progress, Iterator[bytes]]]:
    """Yield the name, the progress and the snapshot of each subtask, from one snapshot of a cell.

    Each snapshot must be read to its end before the next one is requested.

    Raises:
        CorruptData: the parts are not those of a cell.
    """
    left = iter(parts)
    for name, size, progress in subtasks_of_cell(left):
        own = islice(left, size)
        yield name, progress, own
        for _ in own:
            pass


def subtasks_of_cell(parts: Iterator[bytes]) -> list[tuple[str, int, Progress]]:
    """Read the beginning of one snapshot of a cell; return the name, number of parts and progress of each subtask.

    Raises:
        CorruptData: the parts are not those of a cell.
    """
    first = next(parts, b"")
    if first and is_increment(first):
        first = next(parts, b"")
    content = cell_in(first) if first else None
    if content is None:
        raise CorruptData("the snapshot of a cell lacks its first part; it was written by another version")
    return [(name, size, progress) for name, size, progress in content["subtasks"]]


def of_cell(snapshots: Sequence[tuple[str, Progress, Sequence[bytes]]]) -> list[bytes]:
    """Return the snapshot of a cell that consists of the snapshots of its subtasks."""
    return [_first(snapshots), *concatenated.from_iterable(parts for _, _, parts in snapshots)]


def _first(snapshots: Sequence[tuple[str, Progress, Sequence[bytes]]]) -> bytes:
    return cell_part({"subtasks": [[name, len(parts), list(progress)] for name, progress, parts in snapshots]})


class CellSnapshot:
    """The snapshot of a cell (`causal.ports.SnapshotJob`), which encodes the state of one subtask after the other."""

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


class _Joined(LazyParts):
    """Several sequences of parts as one."""

    def __init__(self, sequences: Sequence[Sequence[bytes]]) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        return sum(map(len, self._sequences))

    def __iter__(self) -> Iterator[bytes]:
        return concatenated.from_iterable(self._sequences)

    def part(self, place: int) -> bytes:
        for sequence in self._sequences:
            if place < len(sequence):
                return sequence[place]
            place -= len(sequence)
        raise IndexError(place)
