"""Every decoder of bytes from outside: what reads them, how it may refuse them, and what memory it may take.

A decoder returns, or raises its own error family; anything else that comes out of it is a bug.  The table
serves the properties (tests/properties), the replay of the corpus and the coverage-guided fuzzer alike.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from causal.channels import wire
from causal.config import JobConfig
from causal.cut import Cut
from causal.determinants import LZ4_RATIO_MAX, Determinant, DeterminantCodec, register_kind
from causal.errors import CausalError, CorruptData, PeerViolation, PipelineError
from causal.logs.deltas import pack_deltas, unpack_deltas
from causal.logs.rollback import read_rollback
from causal.records.batch import decode_records, encode_records, pack_chunks, unpack_chunks
from causal.records.values import NotCarried, decode, encode
from causal.storage.directory import Directory
from causal.storage.files import read_parts
from causal.storage.framing import bodies, framed
from causal.storage.object_journal import read_record
from causal.task.shadow import read_frames
from operators.ingest.contract import Segment, digest_of
from operators.ingest.ingest_log import IngestLog
from operators.state.snapshot_parts import read_part
from standby.blueprint import Blueprint
from standby.network.control import AGENT, Inbox
from standby.storage.manifest_files import newest_manifest
from tests.unit.causal.strategies import spelled

JOB = 7
SEGMENT = b"one segment of rows"
MEMORY = Path("/dev/shm")
"""A place where files cost no disk, so that a decoder of files is fuzzed as fast as another."""
FLAT_BYTES = 96 << 10
"""The memory of any decoder beside what the length of its input allows: code, errors and their messages."""


@dataclass(frozen=True)
class Decoder:
    """One decoder of bytes from outside.

    Args:
        read: takes any bytes; what it returns does not matter, what it raises does.
        family: the errors that it promises to raise, and no others.
        memory_max: the most bytes that `read` may take for an input of this many.
        check: asserts what must hold of what was read.
    """

    name: str
    read: Callable[[bytes], Any]
    family: tuple[type[CausalError], ...]
    memory_max: Callable[[int], int]
    check: Callable[[Any], None] | None = None


# -- bounds ------------------------------------------------------------------------------------------------


def per_byte(times: int) -> Callable[[int], int]:
    """Return a bound of `times` bytes for each byte of input."""
    return lambda size: FLAT_BYTES + times * size


def messagepack_bytes_max(size: int) -> int:
    """Return 256 bytes per byte (one byte can say "an empty map"), and eight per slot that an array claims falsely.

    An array may claim as many items as there are bytes, on each of 1024 levels, before it is found out.
    """
    return FLAT_BYTES + 256 * size + 8 * size * min(size, 1024)


# -- readers that need more than a call -----------------------------------------------------------------------


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="causal-fuzz-", dir=MEMORY if MEMORY.is_dir() else None)


def _stored(name: str, data: bytes) -> Path:
    path = Path(_scratch().name) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def determinants(data: bytes) -> list[tuple[int, Determinant]]:
    """Read a whole log: each entry, and the clock reading before it."""
    register_kind("fuzzed", 90)
    codec = DeterminantCodec()
    entries: list[tuple[int, Determinant]] = []
    place = 0
    while place < len(data):
        before = codec.last_ns
        entry, behind = codec.decode(data, place)
        assert place < behind <= len(data), "an entry takes bytes that are there"
        entries.append((before, entry))
        place = behind
    return entries


def header(data: bytes) -> wire.Header:
    """Read the header of a frame with the number of parts that its kind asks for."""
    parts = wire.KINDS.get(data[3], 1) if len(data) > 3 else 1
    return wire.read_header([data, b"", b""][:parts], JOB)


def payload(data: bytes) -> None:
    """Read one byte of flags, four of stated length, then the payload."""
    flags = int.from_bytes(data[:1], "little") & 1
    stated = wire.Header(wire.DATA, JOB, 0, 1, flags=flags, plain_bytes=int.from_bytes(data[1:5], "little"))
    plain = wire.unpack_payload(stated, data[5:])
    assert len(plain) == stated.plain_bytes, "a payload has the length that was stated"


def frame(data: bytes) -> None:
    """Read a whole multipart frame (two lengths before its parts), as far as before anything is believed."""
    first, second = data[:1], data[1:3]
    ends = [first[0] if first else 0, int.from_bytes(second, "little")]
    body = data[3:]
    parts = [body[: ends[0]], body[ends[0] : sum(ends)], body[sum(ends) :]]
    kind = parts[0][3] if len(parts[0]) > 3 else 0
    parts = parts[: wire.KINDS.get(kind, 3)]
    parsed = wire.read_header(parts, JOB)
    if parsed.kind in (wire.DATA, wire.LOGS, wire.ECHO):
        unpack_deltas(parts[1])
    if parsed.kind == wire.ECHO:
        echoed = sum(len(each) for _, each in read_frames(JOB, parsed.count, parts[2]))
        assert echoed <= len(parts[2]), "an echo holds its frames"
    if parsed.kind == wire.DATA:
        for chunk in unpack_chunks(wire.unpack_payload(parsed, parts[2]), parsed.origin_ns):
            if chunk.kind == 1:
                decode_records(chunk.body)
    elif parsed.kind == wire.HELLO:
        wire.read_hello(parts[1])
    elif parsed.kind == wire.WELCOME:
        wire.read_welcome(parts[1])


def sink_journal(data: bytes) -> tuple[list[bytes], bytes]:
    """Read the records of a journal, and the bytes that they fill; the rest is a torn tail."""
    records, filled = bodies(data, Path("journal"))
    return records, data[:filled]


def ingest_manifest(data: bytes) -> None:
    """Read a published batch of an ingest log."""
    _stored("ingest/manifests/0000000000", data)
    IngestLog(Directory(Path(_scratch().name)), "ingest", 2).manifest(0)


def ingest_segment(data: bytes) -> None:
    """Read a published segment: only the bytes that were published are given back."""
    log = IngestLog(Directory(Path(_scratch().name)), "ingest", 2)
    _stored("ingest/segments/0.arrow", data)
    assert log.supply([Segment("0.arrow", 0, 0, 1, digest_of(SEGMENT))]) == SEGMENT, "another segment"


def control(data: bytes) -> None:
    """Read a control message of each kind of sender; the supervisor drops what it cannot read, and continues."""
    inbox = Inbox()
    for sender in (b"w1", AGENT.encode(), b"admin-1"):
        inbox.receive(sender, data)


def manifest(data: bytes) -> None:
    """Read the manifest of a checkpoint."""
    newest_manifest(_stored("checkpoints/manifest-3.json", data).parent.parent)


# -- what must hold of what was read ----------------------------------------------------------------------------


def same_value(value: Any) -> None:
    """Assert that a value can be written, and then read the same; unless it is of a kind that is never written."""
    try:
        packed = encode(value)
    except NotCarried:
        return
    try:
        same = spelled(decode(packed)) == spelled(value)
    except RecursionError:
        return  # the comparison's own, of values nested hundreds of levels deep
    assert same, "a value changed on its second way"


def same_records(records: list[Any]) -> None:
    """Assert the same of a body of records."""
    try:
        packed = encode_records(records)
    except NotCarried:
        return
    assert len(decode_records(packed)) == len(records), "records changed their number on their second way"


def same_determinants(entries: list[tuple[int, Determinant]]) -> None:
    """Assert that each entry can be written again after the same reading, and then read the same."""
    codec = DeterminantCodec()
    for codec.last_ns, entry in entries:
        before = codec.last_ns
        packed = codec.encode(entry)
        codec.last_ns = before
        assert codec.decode(packed, 0) == (entry, len(packed)), "a determinant changed on its second way"


def again(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a check that what was read reads the same when it is written again."""

    def check(value: Any) -> None:
        assert read(write(value)) == value, f"{value} changed on its second way"

    return check


def same_journal(journal: tuple[list[bytes], bytes]) -> None:
    """Assert that the complete records are a journal of their own."""
    assert b"".join(map(framed, journal[0])) == journal[1], "complete records are the bytes they were read from"


PEER, STORED, REPORTED = (PeerViolation,), (CorruptData,), (PipelineError,)

DECODERS: dict[str, Decoder] = {
    decoder.name: decoder
    for decoder in (
        Decoder("values", decode, PEER, messagepack_bytes_max, same_value),
        Decoder("records", decode_records, PEER, messagepack_bytes_max, same_records),
        Decoder("chunks", unpack_chunks, PEER, per_byte(64), again(pack_chunks, unpack_chunks)),
        Decoder("determinants", determinants, PEER, per_byte(2 * LZ4_RATIO_MAX), same_determinants),
        Decoder("header", header, PEER, per_byte(16), again(wire.Header.pack, header)),
        Decoder("deltas", unpack_deltas, PEER, per_byte(128), again(lambda read: pack_deltas(*read), unpack_deltas)),
        Decoder("hello", wire.read_hello, PEER, messagepack_bytes_max, again(wire.Hello.pack, wire.read_hello)),
        Decoder("welcome", wire.read_welcome, PEER, messagepack_bytes_max, again(wire.Welcome.pack, wire.read_welcome)),
        Decoder("payload", payload, PEER, per_byte(LZ4_RATIO_MAX + 1)),
        Decoder("frame", frame, PEER, lambda size: messagepack_bytes_max(size) + 512 * size),
        Decoder("cut", Cut.unpack, STORED, messagepack_bytes_max),
        Decoder("snapshot-part", read_part, STORED, messagepack_bytes_max),
        Decoder("parts", lambda data: read_parts(_stored("some.snap", data)), STORED, per_byte(16)),
        Decoder("sink-journal", sink_journal, STORED, per_byte(64), same_journal),
        Decoder("shared-record", lambda data: read_record((1, 0), data, "journal/1/0"), STORED,
                lambda size: messagepack_bytes_max(size) + 8 * size),
        Decoder("ingest-manifest", ingest_manifest, STORED, per_byte(64)),
        Decoder("ingest-segment", ingest_segment, STORED, per_byte(4)),
        Decoder("control", control, (), messagepack_bytes_max),
        Decoder("manifest", manifest, STORED, per_byte(256)),
        Decoder("job-config", lambda data: JobConfig.load(_stored("job.json", data).parent), REPORTED, per_byte(256)),
        Decoder("blueprint", lambda data: Blueprint.load(_stored("topology.json", data).parent), REPORTED,
                per_byte(512)),
        Decoder("rollback", lambda data: read_rollback(decode(data)), PEER, messagepack_bytes_max),
    )
}  # fmt: skip


def refused(decoder: Decoder, data: bytes) -> bool:
    """Return whether the decoder refuses `data` in its own way; any other error comes out as it is."""
    try:
        value = decoder.read(data)
    except decoder.family:
        return True
    if decoder.check is not None:
        decoder.check(value)
    return False


def memory_of(decoder: Decoder, data: bytes) -> int:
    """Return the most bytes that Python had allocated while the decoder read `data`, beyond what it had before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with suppress(*decoder.family):
            decoder.read(data)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
