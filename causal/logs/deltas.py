"""The encoding of deltas and dependencies in the frames of one channel (docs/wire.md).

In a session, both ends number the logs from 0 in the order in which they are named. A log is *named* once with task,
epoch and offset. Later deltas carry its number and the bytes, or a mark stating that the last byte, or the byte before
it, is repeated. Dependencies are encoded in the same way. One determinant therefore takes one or two bytes on the wire,
regardless of the log's length. The encodings by first byte, where `u` is a varint:

    `00`–`7f`  bytes                                      the next (byte & 15) + 1 bytes of log (byte >> 4)
    `80`–`ef`                                             with n = byte − `80`: the last byte of log n / 14, repeated
                                                          n % 14 + 1 times
    `f0`       u task, u epoch, u offset, u length, bytes  a log is named for the first time or again, with its bytes
    `f1`       u number, u length, bytes                  the same as `00`–`7f`, for any number and length
    `f2`       u task, u epoch, u extent                  only below full sharing depth: the elements depend on this
                                                          extent of the log
    `f3`       u task, u growth                           the same, for an extent that has grown by this much since it
                                                          was last sent
    `f4`       u number, u back                           only with `determinant_flush`: all bytes of the log are stable
                                                          up to this many bytes before its next byte; naming a log with
                                                          length 0 reports its bytes before the offset as stable
    `f8`–`ff`                                             the byte before the last one of log byte − `f8`, once more
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.errors import PeerViolation
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.records.varints import read_varint, varint

DELTAS_PER_FRAME_MAX = 1 << 16
"""The maximum number of deltas or dependencies in a frame, and of logs that a session names."""

_NEAR = 8
"""The number of logs whose short deltas have a header of one byte."""
_SHORT_MAX, _RUN_MAX = 16, 14
_RUNS, _NAME, _FAR, _DEPEND, _GROW, _STABLE, _BACK = 0x80, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF8
_BYTE = [bytes((tag,)) for tag in range(256)]

_UNNAMED, _UNKNOWN = (-1, -1, -1, b""), (-1, 0)
_SMALL = 0x80
"""The limit below which a number is encoded in one byte."""

_Log = tuple[int, int, int, bytes]
"""A log of a session: task, epoch, the offset of the next bytes, and up to two bytes before that offset."""


def _last(last: bytes, piece: bytes) -> bytes:
    return piece[-2:] if len(piece) > 1 else last[-1:] + piece


class DeltaWriter:
    """The sender's half of the encoding, which is reused for one session after another."""

    __slots__ = ("_logs", "_vector")

    def __init__(self) -> None:
        self._logs: dict[int, tuple[int, int, int, bytes]] = {}
        """Task → number, epoch, the offset of the next bytes, and up to two bytes before that offset."""
        self._vector: dict[int, tuple[int, int]] = {}
        """Task → the epoch and extent of the last dependency that was packed."""

    def begin(self) -> None:
        """Begin a new session, in which no log has been named."""
        self._logs = {}
        self._vector = {}

    def pack(self, deltas: Sequence[LogDelta], depends: Sequence[Extent]) -> bytes:
        """Return the bytes for the next frame; empty if there is nothing to send."""
        out: list[bytes] = []
        logs = self._logs
        for task, epoch, offset, piece in deltas:
            size = len(piece)
            number, at, end, last = logs.get(task, _UNNAMED)
            if size and at == epoch and end == offset:
                if number >= _NEAR:
                    out += _BYTE[_FAR], varint(number), varint(size), piece
                elif size <= _RUN_MAX and piece == last[-1:] * size:
                    out.append(_BYTE[_RUNS + number * _RUN_MAX + size - 1])
                elif size == 1 and piece == last[:1]:
                    out.append(_BYTE[_BACK + number])
                elif size <= _SHORT_MAX:
                    out += _BYTE[number << 4 | size - 1], piece
                else:
                    out += _BYTE[_FAR], varint(number), varint(size), piece
            elif not size and at == epoch and offset <= end:
                out += _BYTE[_STABLE], varint(number), varint(end - offset)
                continue  # a report of stable bytes does not change the offset of the next bytes
            else:
                number, last = len(logs) if number < 0 else number, b""
                out += _BYTE[_NAME], varint(task), varint(epoch), varint(offset), varint(size), piece
            logs[task] = (number, epoch, offset + size, piece[-2:] if size > 1 else last[-1:] + piece)
        if depends:
            self._pack_depends(depends, out)
        return b"".join(out)

    def _pack_depends(self, depends: Sequence[Extent], out: list[bytes]) -> None:
        vector = self._vector
        for task, epoch, extent in depends:
            known, before = vector.get(task, _UNKNOWN)
            growth = extent - before
            if known == epoch and 0 <= growth:
                out += _BYTE[_GROW], varint(task), _BYTE[growth] if growth < _SMALL else varint(growth)
            else:
                out += _BYTE[_DEPEND], varint(task), varint(epoch), varint(extent)
            vector[task] = (epoch, extent)


class DeltaReader:
    """The receiver's half of the encoding; the logs that a frame names are registered when the frame is accepted."""

    __slots__ = ("_logs", "_numbers", "_vector", "_next")

    def __init__(self) -> None:
        self._logs: list[_Log] = []
        self._numbers: dict[int, int] = {}
        """Task → index in `_logs`."""
        self._vector: dict[int, tuple[int, int]] = {}
        self._next: tuple[list[_Log], dict[int, int], dict[int, tuple[int, int]]] = ([], {}, {})

    def read(self, data: bytes, begins: bool) -> tuple[list[LogDelta], list[Extent]]:
        """Return the deltas and dependencies of the next frame; `begins` marks the first frame of a session.

        Raises:
            PeerViolation: the bytes do not encode deltas and dependencies.
        """
        logs, numbers, vector = ([], {}, {}) if begins else (self._logs, self._numbers, self._vector)
        deltas: list[LogDelta] = []
        depends: list[Extent] = []
        if data:
            logs, place = logs.copy(), 0
            while place < len(data):
                tag = data[place]
                if tag < _NAME or tag >= _BACK:
                    place = _near(data, place, logs, deltas)
                elif tag == _FAR:
                    place = _far(data, place + 1, logs, deltas)
                elif tag == _STABLE:
                    place = _stable(data, place + 1, logs, deltas)
                elif tag == _NAME:
                    numbers = numbers.copy() if numbers is self._numbers else numbers
                    place = _named(data, place + 1, logs, numbers, deltas)
                elif tag == _GROW or tag == _DEPEND:
                    vector = vector.copy() if vector is self._vector else vector
                    place = _depend(data, place, vector, depends)
                else:
                    raise PeerViolation(f"a delta has the unknown kind {tag}")
                if len(deltas) > DELTAS_PER_FRAME_MAX or len(depends) > DELTAS_PER_FRAME_MAX:
                    raise PeerViolation(f"a frame has more than {DELTAS_PER_FRAME_MAX} deltas or dependencies")
        self._next = logs, numbers, vector
        return deltas, depends

    def commit(self) -> None:
        """Accept the frame that was read last, and keep the names that it introduced."""
        self._logs, self._numbers, self._vector = self._next


def _near(data: bytes, place: int, logs: list[_Log], deltas: list[LogDelta]) -> int:
    """Read consecutive short deltas; nearly always, the data contains nothing else."""
    named, stop = len(logs), min(len(data), place + DELTAS_PER_FRAME_MAX)
    while place < stop:
        tag = data[place]
        if tag < _RUNS:
            number, size = tag >> 4, (tag & 15) + 1
        elif tag < _NAME:
            number, size = divmod(tag - _RUNS, _RUN_MAX)
            size += 1
        elif tag >= _BACK:
            number, size = tag - _BACK, 1
        else:
            break
        if number >= named:
            raise PeerViolation(f"a delta refers to log {number} of its session, which has named only {named} logs")
        task, epoch, offset, last = logs[number]
        place += 1
        if tag < _RUNS:
            piece = data[place : place + size]
            place += size
        else:
            piece = last[-1:] * size if tag < _NAME else last[:1]
        if len(piece) != size:
            raise PeerViolation(f"a delta claims {size} bytes, but only {len(piece)} follow")
        deltas.append(LogDelta(task, epoch, offset, piece))
        logs[number] = (task, epoch, offset + size, piece[-2:] if size > 1 else last[-1:] + piece)
    return place


def _bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, place = read_varint(data, place)
    if size > len(data) - place:
        raise PeerViolation(f"a delta claims {size} bytes, but only {len(data) - place} follow")
    return data[place : place + size], place + size


def _far(data: bytes, place: int, logs: list[_Log], deltas: list[LogDelta]) -> int:
    number, place = read_varint(data, place)
    piece, place = _bytes(data, place)
    if number >= len(logs):
        raise PeerViolation(f"a delta refers to log {number} of its session, which has named only {len(logs)} logs")
    task, epoch, offset, last = logs[number]
    deltas.append(LogDelta(task, epoch, offset, piece))
    logs[number] = (task, epoch, offset + len(piece), _last(last, piece))
    return place


def _stable(data: bytes, place: int, logs: list[_Log], deltas: list[LogDelta]) -> int:
    number, place = read_varint(data, place)
    back, place = read_varint(data, place)
    if number >= len(logs) or back > logs[number][2]:
        raise PeerViolation(f"a delta refers to a missing byte of its session: {back} before the end of log {number}")
    task, epoch, offset, _ = logs[number]
    deltas.append(LogDelta(task, epoch, offset - back, b""))
    return place


def _named(data: bytes, place: int, logs: list[_Log], numbers: dict[int, int], deltas: list[LogDelta]) -> int:
    task, place = read_varint(data, place)
    epoch, place = read_varint(data, place)
    offset, place = read_varint(data, place)
    piece, place = _bytes(data, place)
    deltas.append(LogDelta(task, epoch, offset, piece))
    log = (task, epoch, offset + len(piece), piece[-2:])
    number = numbers.setdefault(task, len(logs))
    if number < len(logs):
        logs[number] = log
    elif number < DELTAS_PER_FRAME_MAX:
        logs.append(log)
    else:
        raise PeerViolation(f"a session names more than {DELTAS_PER_FRAME_MAX} logs")
    return place


def _depend(data: bytes, place: int, vector: dict[int, tuple[int, int]], depends: list[Extent]) -> int:
    """Read consecutive dependencies."""
    end, stop = len(data), place + DELTAS_PER_FRAME_MAX
    while place < end and place < stop:
        tag = data[place]
        if tag == _GROW:
            if place + 2 < end and data[place + 1] < _SMALL and data[place + 2] < _SMALL:  # nearly always the case
                task, growth = data[place + 1], data[place + 2]
                place += 3
            else:
                task, place = read_varint(data, place + 1)
                growth, place = read_varint(data, place)
            epoch, extent = vector.get(task, _UNKNOWN)
            if epoch < 0:
                raise PeerViolation(f"a dependency on task {task} grows before its session has named it")
            extent += growth
        elif tag == _DEPEND:
            task, place = read_varint(data, place + 1)
            epoch, place = read_varint(data, place)
            extent, place = read_varint(data, place)
            if len(vector) >= DELTAS_PER_FRAME_MAX and task not in vector:
                raise PeerViolation(f"a session names dependencies on more than {DELTAS_PER_FRAME_MAX} logs")
        else:
            break
        vector[task] = (epoch, extent)
        depends.append((task, epoch, extent))
    return place


def pack_deltas(deltas: Sequence[LogDelta], depends: Sequence[Extent]) -> bytes:
    """Pack deltas and dependencies outside any session; return no bytes if there is nothing to pack."""
    return DeltaWriter().pack(deltas, depends)


def unpack_deltas(data: bytes) -> tuple[list[LogDelta], list[Extent]]:
    """Return the deltas and dependencies that `pack_deltas` packed.

    Raises:
        PeerViolation: the bytes do not encode deltas and dependencies.
    """
    return DeltaReader().read(data, True)


def split_deltas(deltas: Sequence[LogDelta], bytes_max: int) -> list[list[LogDelta]]:
    """Return the byte ranges in order, in groups of up to `bytes_max` bytes; the only group may be empty."""
    if sum([len(delta.bytes) for delta in deltas]) <= bytes_max:
        return [list(deltas)]
    groups: list[list[LogDelta]] = [[]]
    room = bytes_max
    for delta in deltas:
        start = 0
        while len(delta.bytes) - start > room:
            if room:
                piece = delta.bytes[start : start + room]
                groups[-1].append(LogDelta(delta.task, delta.epoch, delta.offset + start, piece))
            start += room
            groups.append([])
            room = bytes_max
        groups[-1].append(LogDelta(delta.task, delta.epoch, delta.offset + start, delta.bytes[start:]))
        room -= len(delta.bytes) - start
    return groups
