"""Frames, determinants, bundles and control facts in words.

Ranges are half open: `0..2` are the elements, rows or bytes 0 and 1.  `B2` is incarnation 2 of task B, `log A e0`
the determinant log of task A in epoch 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from causal.channels import wire
from causal.channels.echo_headers import EchoHeader, read_echo, read_echoed, read_start
from causal.determinants import Barrier, Call, Clock, Determinant, DeterminantCodec, Order, Random, Timer
from causal.errors import PeerViolation
from causal.ids import OUTSIDE
from causal.logs.deltas import DeltaReader, unpack_deltas
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.ports import Bundle, StoreState
from causal.records import batch
from causal.records.batch import Chunk, decode_records, stamp_of
from causal.task.shadow import read_frames
from causal.topology import Topology
from tests.transcripts.peers import label, rows_of

MS = 1_000_000
ANSWER_SHOWN_MAX = 8
_KINDS = ("DATA", "HELLO", "WELCOME", "CREDIT", "FENCED", "LOGS", "ECHO", "ECHOED")

LogContents = Callable[[int, int], bytes]
"""The content of logs: (task, epoch) → the bytes of that log from 0, as the sender of a message holds them."""


def elements_of(chunks: Iterable[Chunk]) -> list[str]:
    """Return one word per element."""
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
    """Return a number of bytes, short."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.0f} {name}"
    return f"{count} bytes"


class Words:
    """Speaks of one topology.

    Args:
        filed: (task, epoch) → the bytes of that log in its owner's file.
    """

    def __init__(self, topology: Topology, filed: LogContents) -> None:
        self._topology = topology
        self.filed = filed
        self.names = [str(task.name) for task in topology.tasks]
        self._source: dict[int, int] = {channel.id: channel.source for channel in topology.channels}
        self._readers: dict[tuple[int, int, int], DeltaReader] = {}
        """Channel, incarnation of the sender, session → reader: frames are described in the order of sending."""

    def sender(self, task: int, input: int) -> str:
        """Return the name of the far end of an input."""
        inputs = self._topology.inputs(task)  # type: ignore[arg-type]
        if input >= len(inputs):
            return f"input {input}"
        source = inputs[input].source
        return "input" if source == OUTSIDE else self.names[source]

    def determinant(self, task: int, determinant: Determinant) -> str:
        """Return one entry of the log of that task."""
        if isinstance(determinant, Order):
            return f"order {self.sender(task, determinant.input)}×{determinant.count}"
        if isinstance(determinant, Clock):
            return f"clock {determinant.time_ns // MS}ms"
        if isinstance(determinant, Timer):
            return f"timer {determinant.due_ns // MS}ms"
        if isinstance(determinant, Random):
            return f"random {determinant.seed[:2].hex()}…"
        if isinstance(determinant, Call):
            short = len(determinant.answer) <= ANSWER_SHOWN_MAX
            return f"call {determinant.answer.decode()!r}" if short else f"call ({size(len(determinant.answer))})"
        if isinstance(determinant, Barrier):
            return f"{'final ' if determinant.final else ''}barrier {determinant.epoch}"
        return determinant.kind

    def determinants(self, task: int, log: bytes, start: int, end: int) -> str:
        """Return the entries of a log that end in bytes `start..end`, and what of the next one is there."""
        codec, place, words = DeterminantCodec(), 0, []
        while place < end:
            try:
                determinant, behind = codec.decode(log, place)
            except PeerViolation:
                words.append("part of one")
                break
            if behind > end:
                words.append("part of one")
                break
            place = behind
            if place > start:
                words.append(self.determinant(task, determinant))
        return ", ".join(_together(words))

    def deltas(self, deltas: Iterable[LogDelta], contents: LogContents) -> list[str]:
        """Return each byte range of a log, with what is in it."""
        return [self.delta(delta, contents(delta.task, delta.epoch)) for delta in deltas]

    def delta(self, delta: LogDelta, log: bytes) -> str:
        name = f"log {self.names[delta.task]} e{delta.epoch}"
        if not delta.bytes:
            return f"{name} ..{delta.offset} is on disk"
        end = delta.offset + len(delta.bytes)
        inside = self.determinants(delta.task, log, delta.offset, end)
        return f"{name} {delta.offset}..{end}: {inside}"

    def _contents_of(self, deltas: Iterable[LogDelta]) -> dict[tuple[int, int], bytes]:
        """Return each log from 0: the content of its file, and the delta after it."""
        return {(d.task, d.epoch): self.filed(d.task, d.epoch)[: d.offset] + d.bytes for d in deltas}

    def extents(self, extents: Iterable[Extent]) -> str:
        """Return extents of logs in words: `A e0 ..6`."""
        return ", ".join(f"{self.names[task]} e{epoch} ..{extent}" for task, epoch, extent in extents)

    # -- frames --------------------------------------------------------------------------------------

    def frame(self, parts: list[bytes], job: int, contents: LogContents) -> tuple[str, list[str]]:
        """Return the kind of a frame, and its content in words."""
        header = wire.read_header(parts, job)
        if header.kind == wire.DATA:
            return "DATA", self._data(header, parts, contents)
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
        if header.kind == wire.ECHO:
            return "ECHO", self._echo(read_echo(header), job, parts, contents)
        if header.kind == wire.ECHOED:
            answer = read_echoed(header)
            state = "is lost" if answer.lost else f"performed {counted(answer.performed, 'element')} of all inputs"
            return "ECHOED", [f"echo {answer.echo}: {state}"]
        logs, _ = unpack_deltas(parts[1])
        return "LOGS", self.deltas(logs, contents)

    def gist(self, parts: list[bytes], job: int) -> str:
        """Return a frame that has been described already in a few words."""
        header = wire.read_header(parts, job)
        kind = next(name for name in _KINDS if getattr(wire, name) == header.kind)
        if header.kind == wire.ECHO:
            return f"ECHO frame {header.session}.{header.sequence}"
        if kind != "DATA":
            return kind
        what = f"{header.position}..{header.position + header.count}" if header.count else "determinants only"
        return f"DATA frame {header.session}.{header.sequence}  {what}"

    def _echo(self, echo: EchoHeader, job: int, parts: list[bytes], contents: LogContents) -> list[str]:
        said = [f"frame {echo.echo}.{echo.number}"]
        for header, payload in read_frames(job, echo.frames, parts[2]):
            source, start = self.names[self._source[header.channel]], read_start(header)
            if start is not None:
                said.append(f"from {start.position} of {source} on")
            else:
                elements = " ".join(elements_of(batch.unpack_chunks(payload)))
                said.append(f"{source} {header.position}..{header.position + header.count}  {elements}")
        logs, depends = unpack_deltas(parts[1])
        said += self.deltas(logs, contents)
        return said + ([f"depends on {self.extents(depends)}"] if depends else [])

    def _data(self, header: wire.Header, parts: list[bytes], contents: LogContents) -> list[str]:
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
        said += self.deltas(deltas, contents)
        return said + ([f"depends on {self.extents(depends)}"] if depends else [])

    def _welcome(self, welcome: wire.Welcome) -> list[str]:
        first = [f"send from {welcome.next}", f"digest {short(welcome.digest)}" if welcome.next else ""]
        if welcome.delivered != welcome.next:
            first.append(f"delivered up to {welcome.delivered}")
        if not welcome.attempt:
            first.append("there was a gap")
        logs = self._contents_of(welcome.logs)
        only = [extent for extent in welcome.extents if extent[:2] not in logs]
        said = _joined(first) + ([f"I hold {self.extents(only)}"] if only else [])
        said += self.deltas(welcome.logs, lambda task, epoch: logs[task, epoch])
        return said + ([f"I depend on {self.extents(welcome.depends)}"] if welcome.depends else [])

    # -- the store -----------------------------------------------------------------------------------

    def bundle(self, bundle: Bundle, contents: LogContents) -> list[str]:
        """Return rows and the determinants they depend on."""
        said = [f"rows {bundle.first}..{bundle.first + bundle.count}  {' '.join(rows_of(bundle))}"]
        said += self.deltas(bundle.logs, contents)
        return said + ([f"depends on {self.extents(bundle.depends)}"] if bundle.depends else [])

    def store_state(self, state: StoreState) -> list[str]:
        """Return the store's WELCOME."""
        logs = self._contents_of(state.logs)
        digest = f"digest {short(state.digest)}" if state.next else ""
        said = _joined([f"next row is {state.next}", digest])
        said += self.deltas(state.logs, lambda task, epoch: logs[task, epoch])
        marks = [f"mark at {mark.next}: {self.extents(mark.depends) or 'depends on nothing'}" for mark in state.marks]
        return said + marks


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `2 rows`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def short(digest: int) -> str:
    """Return the top of a digest: enough to see whether two are the same."""
    return f"{digest >> 48:04x}"


def _together(words: list[str]) -> list[str]:
    """Join equal phrases that follow each other into one."""
    runs = [(phrase, len(list(run))) for phrase, run in groupby(words)]
    return [phrase if count == 1 else f"{phrase} ({count} times)" for phrase, count in runs]


def _joined(parts: list[str]) -> list[str]:
    return [", ".join(part for part in parts if part)]
