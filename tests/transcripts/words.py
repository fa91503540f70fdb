"""Frames, determinants, bundles and control facts in words.

Ranges are half open: `0..2` are the elements, rows or bytes 0 and 1.  `B2` is incarnation 2 of task B, `log A e0`
the determinant log of task A in epoch 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from causal import batch, wire
from causal.batch import Chunk, decode_records, stamp_of
from causal.deltas import DeltaReader, unpack_deltas
from causal.determinants import Barrier, Call, Clock, Determinant, DeterminantCodec, Order, Random, Timer
from causal.errors import PeerViolation
from causal.ids import OUTSIDE
from causal.log import LogDelta
from causal.ports import Bundle, Held
from causal.rollback import Extent
from causal.topology import Topology
from tests.transcripts.peers import label, rows_of

MS = 1_000_000
ANSWER_SHOWN_MAX = 8
_KINDS = ("DATA", "HELLO", "WELCOME", "CREDIT", "FENCED", "LOGS")

Told = Callable[[int, int], bytes]
"""(task, epoch) → the bytes of that log from 0, as whoever speaks holds them."""


def elements_of(chunks: Iterable[Chunk]) -> list[str]:
    """One word per element."""
    words: list[str] = []
    for chunk in chunks:
        if chunk.kind == batch.RECORDS:
            words += [label(record) for record in decode_records(chunk.body)]
        elif chunk.kind == batch.BARRIER:
            words.append(f"|barrier {stamp_of(chunk)}|")
        else:
            words.append("|end|")
    return words


def size(count: int) -> str:
    """A number of bytes, short."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.0f} {name}"
    return f"{count} bytes"


class Words:
    """Speaks of one topology.

    Args:
        filed: (task, epoch) → the bytes of that log in its owner's file.
    """

    def __init__(self, topology: Topology, filed: Told) -> None:
        self._topology = topology
        self.filed = filed
        self.names = [str(task.name) for task in topology.tasks]
        self._readers: dict[tuple[int, int, int], DeltaReader] = {}
        """By channel, incarnation of the sender and session: frames are told of in the order in which they are sent."""

    def sender(self, task: int, input: int) -> str:
        """Who is at the far end of an input."""
        inputs = self._topology.inputs(task)  # type: ignore[arg-type]
        if input >= len(inputs):
            return f"input {input}"
        source = inputs[input].source
        return "input" if source == OUTSIDE else self.names[source]

    def determinant(self, task: int, told: Determinant) -> str:
        """One entry of the log of that task."""
        if isinstance(told, Order):
            return f"order {self.sender(task, told.input)}×{told.count}"
        if isinstance(told, Clock):
            return f"clock {told.time_ns // MS}ms"
        if isinstance(told, Timer):
            return f"timer {told.due_ns // MS}ms"
        if isinstance(told, Random):
            return f"random {told.seed[:2].hex()}…"
        if isinstance(told, Call):
            short = len(told.answer) <= ANSWER_SHOWN_MAX
            return f"call {told.answer.decode()!r}" if short else f"call ({size(len(told.answer))})"
        if isinstance(told, Barrier):
            return f"barrier {told.epoch}"
        return told.kind

    def determinants(self, task: int, log: bytes, start: int, end: int) -> str:
        """The entries of a log that end in bytes `start..end`, and what of the next one is there."""
        codec, place, words = DeterminantCodec(), 0, []
        while place < end:
            try:
                told, behind = codec.decode(log, place)
            except PeerViolation:
                words.append("part of one")
                break
            if behind > end:
                words.append("part of one")
                break
            place = behind
            if place > start:
                words.append(self.determinant(task, told))
        return ", ".join(_together(words))

    def deltas(self, deltas: Iterable[LogDelta], told: Told) -> list[str]:
        """Each byte range of a log, with what is in it."""
        return [self.delta(delta, told(delta.task, delta.epoch)) for delta in deltas]

    def delta(self, delta: LogDelta, log: bytes) -> str:
        name = f"log {self.names[delta.task]} e{delta.epoch}"
        if not delta.bytes:
            return f"{name} ..{delta.offset} is on disk"
        end = delta.offset + len(delta.bytes)
        inside = self.determinants(delta.task, log, delta.offset, end)
        return f"{name} {delta.offset}..{end}: {inside}"

    def _given(self, deltas: Iterable[LogDelta]) -> dict[tuple[int, int], bytes]:
        """Each log from 0: what a file has, and what is given behind it."""
        return {(d.task, d.epoch): self.filed(d.task, d.epoch)[: d.offset] + d.bytes for d in deltas}

    def extents(self, extents: Iterable[Extent]) -> str:
        """How far logs have come: `A e0 ..6`."""
        return ", ".join(f"{self.names[task]} e{epoch} ..{extent}" for task, epoch, extent in extents)

    # -- frames --------------------------------------------------------------------------------------

    def frame(self, parts: list[bytes], job: int, told: Told) -> tuple[str, list[str]]:
        """(kind, what it says)."""
        header = wire.read_header(parts, job)
        if header.kind == wire.DATA:
            return "DATA", self._data(header, parts, told)
        if header.kind == wire.HELLO:
            hello = wire.read_hello(parts[1])
            again = f"try {hello.attempt}" if hello.attempt > 1 else ""
            said = [f"can replay {hello.low}..{hello.high}", "give me my log" if hello.collect else "", again]
            return "HELLO", _joined(said)
        if header.kind == wire.WELCOME:
            return "WELCOME", self._welcome(wire.read_welcome(parts[1]))
        if header.kind == wire.CREDIT:
            return "CREDIT", [f"delivered up to {header.position}"]
        if header.kind == wire.FENCED:
            return "FENCED", [f"incarnation {header.incarnation} lives"]
        logs, _ = unpack_deltas(parts[1])
        return "LOGS", self.deltas(logs, told)

    def gist(self, parts: list[bytes], job: int) -> str:
        """A frame that has been told of already, in a few words."""
        header = wire.read_header(parts, job)
        kind = next(name for name in _KINDS if getattr(wire, name) == header.kind)
        if kind != "DATA":
            return kind
        what = f"{header.position}..{header.position + header.count}" if header.count else "determinants only"
        return f"DATA frame {header.session}.{header.sequence}  {what}"

    def _data(self, header: wire.Header, parts: list[bytes], told: Told) -> list[str]:
        session = (header.channel, header.incarnation, header.session)
        reader = self._readers.setdefault(session, DeltaReader())
        deltas, depends = reader.read(parts[1], begins=not header.sequence)
        reader.commit()
        frame = f"frame {header.session}.{header.sequence}"
        if header.count:
            elements = elements_of(batch.unpack_chunks(wire.unpack_payload(header, parts[2])))
            said = [f"{frame}  {header.position}..{header.position + header.count}  {' '.join(elements)}"]
        else:
            said = [f"{frame}  no elements, determinants only"]
        said += self.deltas(deltas, told)
        return said + ([f"depends on {self.extents(depends)}"] if depends else [])

    def _welcome(self, told: wire.Welcome) -> list[str]:
        first = [f"send from {told.next}", f"digest {short(told.digest)}" if told.next else ""]
        if told.delivered != told.next:
            first.append(f"delivered up to {told.delivered}")
        if not told.attempt:
            first.append("there was a gap")
        given = self._given(told.logs)
        only = [extent for extent in told.extents if extent[:2] not in given]
        said = _joined(first) + ([f"I hold {self.extents(only)}"] if only else [])
        said += self.deltas(told.logs, lambda task, epoch: given[task, epoch])
        return said + ([f"I depend on {self.extents(told.depends)}"] if told.depends else [])

    # -- the store -----------------------------------------------------------------------------------

    def bundle(self, bundle: Bundle, told: Told) -> list[str]:
        """Rows and the determinants they depend on."""
        said = [f"rows {bundle.first}..{bundle.first + bundle.count}  {' '.join(rows_of(bundle))}"]
        said += self.deltas(bundle.logs, told)
        return said + ([f"depends on {self.extents(bundle.depends)}"] if bundle.depends else [])

    def held(self, held: Held) -> list[str]:
        """The store's WELCOME."""
        given = self._given(held.logs)
        digest = f"digest {short(held.digest)}" if held.next else ""
        said = _joined([f"next row is {held.next}", digest])
        said += self.deltas(held.logs, lambda task, epoch: given[task, epoch])
        marks = [f"mark at {mark.next}: {self.extents(mark.depends) or 'depends on nothing'}" for mark in held.marks]
        return said + marks


def counted(count: int, word: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {word}{'s' * (count != 1)}"


def short(digest: int) -> str:
    """The top of a digest: enough to see whether two are the same."""
    return f"{digest >> 48:04x}"


def _together(words: list[str]) -> list[str]:
    """What comes several times in a row is said once."""
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    return [word if count == 1 else f"{word} ({count} times)" for word, count in runs]


def _joined(parts: list[str]) -> list[str]:
    return [", ".join(part for part in parts if part)]
