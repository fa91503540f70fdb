"""Determinants: the logged outcomes of a task's nondeterministic events, and the encoding of each kind in the log.

The set of kinds is open: a kind consists of a name, a tag that is never reused, an encoder and a decoder. `Order`,
`Run`, `Timer`, `Answer` and `Barrier` *are* the schedule (D1). The other kinds are values requested during such an
event and follow it in the order of the requests. The docstring of each kind describes its entries: tag, fields and
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lz4.block

from causal.errors import PeerViolation, invariant
from causal.records.batch import FINAL
from causal.records.varints import read_varint, unzigzag, varint, zigzag

CLOCK, RANDOM, WINDOW, TIMER, CALL, BARRIER, RUN, CALL_LZ4, ANSWER, ANSWER_LZ4 = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
# Tags 0x80 to 0xfe are Order, with the channel in the low seven bits; 0xff precedes the number of a higher channel.
# Tags 0x20 to 0x3f are Order for a single element of one of the channels 0 to 31.
ORDER_ONE_FIRST, ORDER_ONE_LAST = 32, 63
USER_FIRST, USER_LAST = 64, 127
_ORDER, _ORDER_WIDE = 0x80, 0xFF
_COMPRESS_FROM_BYTES = 512
ANSWER_BYTES_MAX = 16 << 20
LZ4_RATIO_MAX = 255
"""The maximum expansion of an LZ4 block; a larger stated size is refused before memory is allocated."""
_INTERVAL_BYTES_MIN = 2
_SEED_BYTES = 16


@dataclass(slots=True)
class Order:
    """The next `count` elements of input `input` are delivered.

    Entry: `20`–`3f`, the input in the low 5 bits of the tag, for one element: 1 byte.
    Entry: `80`–`fe`, the input in the low 7 bits of the tag, count (varint): 2 bytes below 128 elements, 3 below
    16,384.
    Entry: `ff`, input, count (varints), for inputs from 127: 3 bytes or more.
    """

    input: int
    count: int
    kind = "order"


@dataclass(slots=True)
class Run:
    """The next `count` events follow the rule of an ordered task.

    Entry: `07`, count from 1 (varint): 2 bytes below 128 events.
    """

    count: int
    kind = "run"


@dataclass(slots=True)
class Clock:
    """A reading of the clock.

    Entry: `01`, difference in ns (zigzag varint): 2 to 10 bytes.
    """

    time_ns: int
    kind = "clock"


@dataclass(slots=True)
class Random:
    """The random seed of the epoch; drawing random numbers adds no entries.

    Entry: `02`, the seed without further encoding: 17 bytes.
    """

    seed: bytes
    kind = "random"


@dataclass(slots=True)
class Window:
    """Operator `operator` fires its window that ends at `end_ns`, with the elements in these (start, length) intervals.

    Entry: `03`, operator, end − last reading (zigzag), number of intervals, and for each interval its start − the end
    of the previous one (zigzag) and its length (varints): 4 bytes or more, plus 2 or more per interval.
    """

    operator: int
    end_ns: int
    intervals: tuple[tuple[int, int], ...]
    kind = "window"


@dataclass(slots=True)
class Timer:
    """All timers that are due at `due_ns` fire.

    Entry: `04`, difference in ns (zigzag varint): 2 to 10 bytes.
    """

    due_ns: int
    kind = "timer"


@dataclass(slots=True)
class Call:
    """An answer from the outside world.

    Entry: `05`, length (varint), answer: 1 byte plus length and answer.
    Entry: `08`, length, uncompressed length (varints), LZ4 block: for answers of 512 bytes or more, if it is shorter.
    """

    answer: bytes
    kind = "call"


@dataclass(slots=True)
class Answer:
    """The outside world has answered request `number` of operator `operator`.

    Entry: `09`, operator, number, length (varints), answer: 4 bytes plus the answer, if each number is below 128.
    Entry: `0a`, operator, number, then as for `08`: used if it is shorter.
    """

    operator: int
    number: int
    body: bytes
    kind = "answer"


@dataclass(slots=True)
class Barrier:
    """A source emits barrier `epoch` at this point; after a final barrier it performs nothing more.

    Entry: `06`, epoch, with bit 62 set in the last barrier of a job (varint): 2 bytes below epoch 128, 10 for the last.
    """

    epoch: int
    final: bool = False
    kind = "barrier"


@dataclass(slots=True)
class User:
    """A value of a kind that a user has registered.

    Entry: `40`–`7f`, length (varint), value: 1 byte plus length and value; the tag identifies the kind.
    """

    name: str
    value: bytes
    kind = "user"


Determinant = Order | Run | Clock | Random | Window | Timer | Call | Answer | Barrier | User
KINDS = ("order", "run", "clock", "random", "window", "timer", "call", "answer", "barrier", "user")

_user_tags: dict[str, int] = {}
_user_names: dict[int, str] = {}


def register_kind(name: str, tag: int) -> None:
    """Register a user-defined kind; call this while the pipeline file is loaded, identically in every process.

    Args:
        tag: a number from 64 to 127, which must not be reused for another kind while a log that uses it may exist.

    Raises:
        ValueError: the tag is out of range, or the tag or the name is already part of a different registration.
    """
    if not USER_FIRST <= tag <= USER_LAST:
        raise ValueError(f"tag {tag} of determinant kind {name!r} is outside the range {USER_FIRST} to {USER_LAST}")
    if _user_tags.get(name, tag) != tag or _user_names.get(tag, name) != name:
        raise ValueError(f"determinant kind {name!r} with tag {tag} clashes with another registration")
    _user_tags[name] = tag
    _user_names[tag] = name


def registered(name: str) -> bool:
    """Return whether `register_kind` has been called for this kind."""
    return name in _user_tags


def encode_order(input: int, count: int) -> bytes:
    """Encode an `Order` without creating an object, because this code runs for every event."""
    if count == 1 and input <= ORDER_ONE_LAST - ORDER_ONE_FIRST:
        return bytes((ORDER_ONE_FIRST + input,))
    if input < 127:
        return bytes((_ORDER | input, count)) if count < 0x80 else bytes((_ORDER | input,)) + varint(count)
    return bytes((_ORDER_WIDE,)) + varint(input) + varint(count)


class DeterminantCodec:
    """The encoding of one epoch's log entries; each clock reading is encoded as the difference from the last one.

    State: `last_ns`, the last reading written or read; 0 at the beginning of the epoch.
    """

    __slots__ = ("last_ns",)

    def __init__(self) -> None:
        self.last_ns = 0

    def encode(self, determinant: Determinant) -> bytes:
        """Return the entry for `determinant`; this changes `last_ns` for a Clock or Timer."""
        if type(determinant) is Order:
            return encode_order(determinant.input, determinant.count)
        return _ENCODERS[type(determinant)](self, determinant)

    def decode(self, log: bytes | bytearray, place: int) -> tuple[Determinant, int]:
        """Return the determinant at `place` and the place after it; this changes `last_ns` for a Clock or Timer.

        Raises:
            PeerViolation: the tag is unknown, the entry is invalid, or the log ends inside it.
        """
        if place >= len(log):
            raise PeerViolation(f"byte {place} has no determinant, because the log ends after {len(log)} bytes")
        tag = log[place]
        place += 1
        if tag >= _ORDER:
            input = tag & 0x7F
            if tag == _ORDER_WIDE:
                input, place = read_varint(log, place)
            count, place = read_varint(log, place)
            if not count:
                raise PeerViolation(f"the order that ends at byte {place} delivers no elements")
            return Order(input, count), place
        if ORDER_ONE_FIRST <= tag <= ORDER_ONE_LAST:
            return Order(tag - ORDER_ONE_FIRST, 1), place
        if USER_FIRST <= tag:
            name = _user_names.get(tag)
            if name is None:
                raise PeerViolation(f"determinant tag {tag} is not registered in this process")
            value, place = _read_bytes(log, place)
            return User(name, value), place
        reader = _DECODERS.get(tag)
        if reader is None:
            raise PeerViolation(f"unknown determinant tag {tag} at byte {place - 1}")
        return reader(self, log, place)

    def step(self, time_ns: int) -> bytes:
        moved = varint(zigzag(time_ns - self.last_ns))
        self.last_ns = time_ns
        return moved

    def unstep(self, log: bytes | bytearray, place: int) -> tuple[int, int]:
        moved, place = read_varint(log, place)
        self.last_ns += unzigzag(moved)
        return self.last_ns, place


def _read_bytes(log: bytes | bytearray, place: int) -> tuple[bytes, int]:
    length, place = read_varint(log, place)
    if length > ANSWER_BYTES_MAX or place + length > len(log):
        raise PeerViolation(f"the determinant at byte {place} claims {length} bytes")
    return bytes(log[place : place + length]), place + length


def _bytes_entry(tag: int, value: bytes) -> bytes:
    invariant(len(value) <= ANSWER_BYTES_MAX, "a determinant is too large to log", bytes=len(value))
    return bytes((tag,)) + varint(len(value)) + value


def _encode_random(codec: DeterminantCodec, random: Random) -> bytes:
    invariant(len(random.seed) == _SEED_BYTES, "a seed has 16 bytes", bytes=len(random.seed))
    return bytes((RANDOM,)) + random.seed


def _squeezed(value: bytes) -> bytes | None:
    """Return the length and LZ4 block of an answer, or None if compression does not make it shorter."""
    if len(value) < _COMPRESS_FROM_BYTES:
        return None
    packed = varint(len(value)) + lz4.block.compress(value, store_size=False)
    return packed if len(packed) < len(value) else None


def _encode_call(codec: DeterminantCodec, call: Call) -> bytes:
    packed = _squeezed(call.answer)
    return _bytes_entry(CALL, call.answer) if packed is None else _bytes_entry(CALL_LZ4, packed)


def _encode_answer(codec: DeterminantCodec, answer: Answer) -> bytes:
    packed = _squeezed(answer.body)
    entry = _bytes_entry(ANSWER, answer.body) if packed is None else _bytes_entry(ANSWER_LZ4, packed)
    return entry[:1] + varint(answer.operator) + varint(answer.number) + entry[1:]


def _encode_window(codec: DeterminantCodec, window: Window) -> bytes:
    parts = [bytes((WINDOW,)), varint(window.operator), varint(zigzag(window.end_ns - codec.last_ns))]
    parts.append(varint(len(window.intervals)))
    behind = 0
    for start, length in window.intervals:
        parts.append(varint(zigzag(start - behind)) + varint(length))
        behind = start + length
    return b"".join(parts)


def _decode_window(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Window, int]:
    operator, place = read_varint(log, place)
    ends, place = read_varint(log, place)
    count, place = read_varint(log, place)
    if count > (len(log) - place) // _INTERVAL_BYTES_MIN:
        raise PeerViolation(f"the window at byte {place} claims {count} intervals")
    intervals, behind = [], 0
    for _ in range(count):
        skip, place = read_varint(log, place)
        length, place = read_varint(log, place)
        start = behind + unzigzag(skip)
        intervals.append((start, length))
        behind = start + length
    return Window(operator, codec.last_ns + unzigzag(ends), tuple(intervals)), place


def _decode_clock(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Clock, int]:
    time_ns, place = codec.unstep(log, place)
    return Clock(time_ns), place


def _decode_timer(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Timer, int]:
    due_ns, place = codec.unstep(log, place)
    return Timer(due_ns), place


def _decode_random(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Random, int]:
    if place + _SEED_BYTES > len(log):
        raise PeerViolation(f"the log ends inside the seed at byte {place}")
    return Random(bytes(log[place : place + _SEED_BYTES])), place + _SEED_BYTES


def _decode_call(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Call, int]:
    answer, place = _read_bytes(log, place)
    return Call(answer), place


def _read_squeezed(log: bytes | bytearray, place: int) -> tuple[bytes, int]:
    packed, place = _read_bytes(log, place)
    plain, start = read_varint(packed, 0)
    if plain > min(ANSWER_BYTES_MAX, (len(packed) - start) * LZ4_RATIO_MAX):
        raise PeerViolation(f"a compressed answer of {len(packed) - start} bytes claims {plain} uncompressed bytes")
    try:
        answer = lz4.block.decompress(packed[start:], uncompressed_size=plain)
    except lz4.block.LZ4BlockError as problem:
        raise PeerViolation(f"a compressed answer is damaged: {problem}") from None
    if len(answer) != plain:
        raise PeerViolation(f"a compressed answer of {len(answer)} bytes claims {plain} uncompressed bytes")
    return answer, place


def _decode_call_lz4(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Call, int]:
    answer, place = _read_squeezed(log, place)
    return Call(answer), place


def _decode_answer(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Answer, int]:
    operator, place = read_varint(log, place)
    number, place = read_varint(log, place)
    body, place = _read_bytes(log, place)
    return Answer(operator, number, body), place


def _decode_answer_lz4(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Answer, int]:
    operator, place = read_varint(log, place)
    number, place = read_varint(log, place)
    body, place = _read_squeezed(log, place)
    return Answer(operator, number, body), place


def _decode_run(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Run, int]:
    count, place = read_varint(log, place)
    if not count:
        raise PeerViolation(f"the run that ends at byte {place} performs no events")
    return Run(count), place


def _decode_barrier(codec: DeterminantCodec, log: bytes | bytearray, place: int) -> tuple[Barrier, int]:
    stamp, place = read_varint(log, place)
    return Barrier(stamp & ~FINAL, bool(stamp & FINAL)), place


_ENCODERS: dict[type, Callable[..., bytes]] = {
    Clock: lambda codec, reading: bytes((CLOCK,)) + codec.step(reading.time_ns),
    Timer: lambda codec, timer: bytes((TIMER,)) + codec.step(timer.due_ns),
    Random: _encode_random,
    Window: _encode_window,
    Call: _encode_call,
    Answer: _encode_answer,
    Run: lambda codec, run: bytes((RUN,)) + varint(run.count),
    Barrier: lambda codec, barrier: (
        bytes((BARRIER,)) + varint(barrier.epoch | FINAL if barrier.final else barrier.epoch)
    ),
    User: lambda codec, user: _bytes_entry(_user_tags[user.name], user.value),
}
_DECODERS: dict[int, Callable[..., tuple[Determinant, int]]] = {
    CLOCK: _decode_clock,
    TIMER: _decode_timer,
    RANDOM: _decode_random,
    WINDOW: _decode_window,
    CALL: _decode_call,
    CALL_LZ4: _decode_call_lz4,
    ANSWER: _decode_answer,
    ANSWER_LZ4: _decode_answer_lz4,
    RUN: _decode_run,
    BARRIER: _decode_barrier,
}
