"""The data plane's frames: one fixed header, then deltas and payload, or the body of a control message.

    DATA     downstream            deltas (may be empty); payload
    HELLO    downstream            MessagePack list: the range of positions that the sender can replay
    WELCOME  upstream              MessagePack list: the receiver's next position, and the logs that it holds
    CREDIT   upstream              none: elements below `position` are delivered; `count` bytes may be outstanding
    FENCED   upstream              none: `incarnation` is the current one; the process that receives this exits
    LOGS     upstream              deltas that do not fit into the following WELCOME
    ECHO     to a hot standby      deltas; DATA headers, each with its uncompressed payload
    ECHOED   from a hot standby    none: the progress of the hot standby

Every malformed frame is a `PeerViolation`, and sizes are checked before memory is allocated. The page `docs/wire.md`
describes the encoding byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import lz4.block

from causal.determinants import LZ4_RATIO_MAX
from causal.errors import PeerViolation
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.records.values import decode, encode

MAGIC = b"CL"
VERSION = 2
FRAME_BYTES_MAX = 64 << 20

DATA, HELLO, WELCOME, CREDIT, FENCED, LOGS, ECHO, ECHOED = 1, 2, 3, 4, 5, 6, 7, 8
KINDS = {DATA: 3, HELLO: 2, WELCOME: 2, CREDIT: 1, FENCED: 1, LOGS: 2, ECHO: 3, ECHOED: 1}
"""Kind → the number of parts in its frames. A kind's number is never reused; retired kinds stay here with a note."""

ECHOES = frozenset((ECHO, ECHOED))
"""The kinds of frames between a task and its hot standby; all other kinds belong to a session."""

_LZ4 = 1
LAYOUT = {
    "magic": "2s", "version": "B", "kind": "B", "job": "Q", "channel": "I", "incarnation": "I", "session": "I",
    "sequence": "I", "count": "I", "flags": "B", "position": "Q", "digest": "Q", "origin_ns": "Q", "plain_bytes": "I",
}  # fmt: skip
"""The header fields in order, with their `struct` formats: little-endian and unsigned."""
_HEADER = struct.Struct("<" + "".join(LAYOUT.values()))
HEADER_BYTES = _HEADER.size
_COMPRESS_FROM_BYTES = 1024


@dataclass(slots=True)
class Header:
    """The header with which every frame begins.

    Attributes:
        kind: the kind of frame, one of KINDS.
        job: the fingerprint of run, guarantee, sharing depth, key groups, determinant flush and topology.
        channel: the number of the channel in the topology.
        incarnation: the incarnation of the sending task; in FENCED, the current incarnation of the fenced task.
        session: DATA: the number of WELCOMEs that this sender has accepted on the channel.
        sequence: DATA: the number of the frame in its session, from 0.
        count: DATA: the number of elements in the payload; CREDIT: the number of bytes that may be outstanding.
        flags: bit 0: the payload is an LZ4 block; the other bits are 0.
        position: DATA: the position of the first element; CREDIT: the position of the first undelivered element.
        digest: DATA: the rolling digest after the last element.
        origin_ns: DATA: the time at which the oldest record entered the job; for latency metrics only.
        plain_bytes: DATA: the length of the payload before compression.
    """

    kind: int
    job: int
    channel: int
    incarnation: int
    session: int = 0
    sequence: int = 0
    count: int = 0
    position: int = 0
    digest: int = 0
    origin_ns: int = 0
    plain_bytes: int = 0
    flags: int = 0

    def pack(self) -> bytes:
        return _HEADER.pack(
            MAGIC, VERSION, self.kind, self.job, self.channel, self.incarnation, self.session, self.sequence,
            self.count, self.flags, self.position, self.digest, self.origin_ns, self.plain_bytes,
        )  # fmt: skip


def read_header(parts: Sequence[bytes | memoryview], job: int) -> Header:
    """Read the header of a multipart frame; its other parts are only counted and measured.

    Raises:
        PeerViolation: the frame is malformed or too long, or belongs to another protocol version or job.
    """
    if not parts or len(parts[0]) != HEADER_BYTES:
        raise PeerViolation(f"a frame's header has {len(parts[0]) if parts else 0} bytes, not {HEADER_BYTES}")
    (
        magic,
        version,
        kind,
        its_job,
        channel,
        incarnation,
        session,
        sequence,
        count,
        flags,
        position,
        digest,
        origin,
        plain,
    ) = _HEADER.unpack(parts[0])
    if magic != MAGIC:
        raise PeerViolation("a frame does not belong to the protocol of causal-streams")
    if version != VERSION:
        raise PeerViolation(f"a frame has protocol version {version}, but this process uses version {VERSION}")
    if its_job != job:
        raise PeerViolation(f"a frame belongs to job {its_job:016x}, but this is job {job:016x}")
    if KINDS.get(kind) != len(parts):
        raise PeerViolation(f"a frame of kind {kind} has {len(parts)} parts")
    if flags & ~_LZ4:
        raise PeerViolation(f"a frame has unknown flags {flags:#04x}")
    if plain > FRAME_BYTES_MAX or sum(map(len, parts)) > FRAME_BYTES_MAX:
        raise PeerViolation(f"a frame has more than {FRAME_BYTES_MAX} bytes")
    return Header(kind, its_job, channel, incarnation, session, sequence, count, position, digest, origin, plain, flags)


def read_echoed(packed: bytes | memoryview, job: int) -> Header:
    """Read the header of a frame in the body of an ECHO, which must be DATA with an uncompressed payload.

    Raises:
        PeerViolation: the header is not a DATA header, or the payload is compressed.
    """
    header = read_header((packed, b"", b""), job)
    if header.kind != DATA or header.flags:
        raise PeerViolation("an echo wraps a frame that is not plain DATA")
    return header


def channel_of(header: bytes) -> int | None:
    """Return the channel named in a header, or None if `header` is not a header; `read_header` checks the rest."""
    if len(header) != HEADER_BYTES or not header.startswith(MAGIC):
        return None
    channel: int = _HEADER.unpack(header)[4]
    return channel


def pack_payload(header: Header, payload: bytes | memoryview, compress: bool) -> list[bytes]:
    """Return [header, payload], compressed if requested and worthwhile; set the header's length and flags."""
    header.plain_bytes = len(payload)
    if compress and len(payload) >= _COMPRESS_FROM_BYTES:
        packed = lz4.block.compress(payload, store_size=False)
        if len(packed) < len(payload) * 7 // 8:
            header.flags |= _LZ4
            return [header.pack(), packed]
    return [header.pack(), bytes(payload)]


def unpack_payload(header: Header, payload: bytes | memoryview) -> bytes | memoryview:
    """Return the uncompressed payload.

    Raises:
        PeerViolation: the payload does not have the stated length, or cannot be decompressed.
    """
    if not header.flags & _LZ4:
        if len(payload) != header.plain_bytes:
            raise PeerViolation(f"a payload has {len(payload)} bytes, but its header states {header.plain_bytes}")
        return payload
    if header.plain_bytes > len(payload) * LZ4_RATIO_MAX:
        raise PeerViolation(
            f"a compressed payload has {len(payload)} bytes, but its header states {header.plain_bytes} uncompressed"
        )
    try:
        plain: bytes = lz4.block.decompress(payload, uncompressed_size=header.plain_bytes)
    except lz4.block.LZ4BlockError as problem:
        raise PeerViolation(f"a compressed payload is damaged: {problem}") from None
    if len(plain) != header.plain_bytes:
        raise PeerViolation(f"a payload has {len(plain)} bytes, but its header states {header.plain_bytes}")
    return plain


@dataclass(slots=True)
class Hello:
    """The sender's half of the handshake (D5).

    `attempt` increases with each HELLO from this end. The positions from `low` to `high` can be replayed, and
    `low_digest` is the rolling digest at `low`. `collect` requests the log bytes that the receiver holds for the
    sender.
    """

    attempt: int
    low: int
    high: int
    low_digest: int
    collect: bool

    def pack(self) -> bytes:
        return encode([self.attempt, self.low, self.high, self.low_digest, self.collect])


@dataclass(slots=True)
class Welcome:
    """The receiver's half of the handshake: its next position, the digest at that position, and its logs.

    `attempt` is 0 if the frame reports a gap instead of answering a HELLO. The elements between `delivered` and `next`
    are waiting at the receiver and still count against the sender's credit.
    """

    attempt: int
    next: int
    digest: int
    extents: list[Extent]
    logs: list[LogDelta]
    depends: list[Extent]
    delivered: int = 0

    def pack(self) -> bytes:
        logs = [[d.task, d.epoch, d.offset, d.bytes] for d in self.logs]
        extents, depends = [list(e) for e in self.extents], [list(e) for e in self.depends]
        return encode([self.attempt, self.next, self.digest, extents, logs, depends, self.delivered])


def _numbers(value: object, count: int) -> bool:
    return type(value) is list and len(value) == count and all(type(n) is int and 0 <= n < 1 << 64 for n in value)


def read_hello(body: bytes) -> Hello:
    """Read the HELLO in a frame's body.

    Raises:
        PeerViolation: the body is not a HELLO.
    """
    fields = decode(body)
    if type(fields) is not list or not _numbers(fields[:4], 4) or len(fields) < 5 or type(fields[4]) is not bool:
        raise PeerViolation("a HELLO has missing or unexpected fields")
    return Hello(*fields[:5])


def read_welcome(body: bytes) -> Welcome:
    """Read the WELCOME in a frame's body.

    Raises:
        PeerViolation: the body is not a WELCOME.
    """

    fields = decode(body)
    if type(fields) is not list or len(fields) < 7 or not _numbers([*fields[:3], fields[6]], 4):
        raise PeerViolation("a WELCOME has missing or unexpected fields")
    attempt, following, digest, extents, logs, depends, delivered = fields[:7]
    if type(extents) is not list or type(depends) is not list or type(logs) is not list:
        raise PeerViolation("a WELCOME has missing or unexpected fields")
    if not all(_numbers(e, 3) for e in extents) or not all(_numbers(e, 3) for e in depends):
        raise PeerViolation("a WELCOME has malformed extents")
    if not all(type(d) is list and len(d) == 4 and _numbers(d[:3], 3) and type(d[3]) is bytes for d in logs):
        raise PeerViolation("a WELCOME has malformed logs")
    return Welcome(
        attempt, following, digest, [tuple(e) for e in extents], [LogDelta(*d) for d in logs],
        [tuple(e) for e in depends], delivered,
    )  # fmt: skip
