"""Two libraries give values the bytes, the types, and the refusals that msgpack alone gives them."""

from __future__ import annotations

import enum
import random
import resource
import subprocess
import sys
import threading
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgpack
import numpy
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PeerViolation
from causal.records import values
from causal.records.values import NESTING_MAX, TUPLE_DEPTH_MAX, NotCarried, decode, decode_dicts, encode, encode_loosely
from operators.records.nesting import room_for_nesting
from tests.members import campaign
from tests.unit.causal import msgpack_alone as alone
from tests.unit.causal.strategies import datetimes, spelled, texts
from tests.unit.causal.strategies import values as carried


class _Text(str):
    pass


class _Whole(int):
    pass


class _Real(float):
    pass


class _Bytes(bytes):
    pass


class _Changing(bytearray):
    pass


class _List(list[Any]):
    pass


class _Dict(dict[Any, Any]):
    pass


class _Moment(datetime):
    pass


class _Color(enum.Enum):
    RED = "red"


class _Number(enum.IntEnum):
    ONE = 1


class _Word(enum.StrEnum):
    YES = "yes"


class _Flag(enum.IntFlag):
    A = 1


class _Named(NamedTuple):
    a: int


@dataclass
class _Data:
    a: int = 1


@dataclass(frozen=True, slots=True)
class _Slots:
    a: int = 1


_Pair = namedtuple("_Pair", "a b")

HASHABLE_ODDS: list[Any] = [
    _Text("x"),
    _Whole(1),
    _Real(1.5),
    _Bytes(b"x"),
    _Moment(2026, 1, 1),
    _Color.RED,
    _Number.ONE,
    _Word.YES,
    _Flag.A,
    _Named(1),
    _Pair(1, 2),
    _Slots(),
    date(2026, 1, 1),
    time(1, 2),
    timedelta(1),
    uuid.UUID(int=5),
    datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "Z")),
    frozenset({1}),
    1j,
    *(date.min, date.max, timedelta.min, timedelta.max, UTC, ZoneInfo("UTC"), time(1, tzinfo=UTC, fold=1)),
    numpy.float64(1.5),
    numpy.int64(1),
    numpy.bool_(True),
    numpy.str_("x"),
    numpy.datetime64("2026-01-01"),
    msgpack.ExtType(1, b"\x90"),
    msgpack.ExtType(9, b""),
    msgpack.Timestamp(1, 2),
    ...,
    object(),
    len,
]
OTHER_ODDS: list[Any] = [
    {1},
    _Data(),
    _List([1]),
    _Dict(a=1),
    OrderedDict(a=1),
    defaultdict(int),
    numpy.arange(3),
    bytearray(b"x" * 300),
    _Changing(b"x"),
    memoryview(b"abcdef"),
    memoryview(b"abcdef")[::2],
    memoryview(b"abcdefgh").cast("I"),
    memoryview(numpy.arange(6).reshape(2, 3)),
    range(3),
    iter([1]),
]
EDGES: list[Any] = [
    *(sign * 2**bits + more for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64) for more in (-1, 0, 1) for sign in (1, -1)),
    *("x" * length for length in (0, 31, 32, 63, 64, 65, 255, 256, 65535, 65536)),
    *(b"x" * length for length in (0, 255, 256, 65535, 65536)),
    *([None] * length for length in (0, 15, 16, 65536)),
    *({str(each): each for each in range(length)} for length in (0, 15, 16, 65536)),
    *({"k" * length: 1} for length in (0, 31, 32, 64, 65, 255, 256, 70000)),
    *((1,) * length for length in (0, 1, 2, 3, 14, 15, 16, 252, 253, 254, 255, 300, 66000)),
    *(-0.0, float("nan"), -float("nan"), float("inf"), 5e-324, 1.7976931348623157e308),
    *("\ud800", "a\udfff", "\x00", "\ufeff", "\U0010ffff", "é", "日本"),
    *(Decimal("NaN"), Decimal("-0.00"), Decimal("1E+400"), 10**4000, -(10**4000)),
    *(datetime.min, datetime.max, datetime(2026, 1, 1, fold=1), datetime(2026, 1, 1, tzinfo=UTC)),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "UTC")),
    {0: "int", True: "bool"},
    {1.5: 0, None: 1, b"x": 2, (1, "a"): 3, "s": 4, 2**70: 5, datetime(2026, 1, 1): 6, Decimal(1): 7},
    {"a": 1, 2: 3},
    [{"a": 1}, {2: 3}],
    {"a": {1: 2}},
]

TOO_LONG = 10**5000
"""More digits than Python writes."""

odds = st.integers(0, len(HASHABLE_ODDS) - 1).map(lambda place: HASHABLE_ODDS[place])
others = st.integers(0, len(OTHER_ODDS) - 1).map(lambda place: OTHER_ODDS[place])
anything: st.SearchStrategy[Any] = st.recursive(
    carried | odds | others,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(texts | st.integers() | odds, inner, max_size=3)
    ),
    max_leaves=8,
)
rows = st.lists(
    st.dictionaries(st.text(max_size=9), carried, min_size=1, max_size=5)
    | st.fixed_dictionaries({"user": st.text(max_size=40), "at": datetimes, "n": st.integers(), "v": st.floats()}),
    min_size=2,
    max_size=20,
)
"""Lists of dicts, of which most are long enough for `decode_dicts`."""


def outcome(act: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """Return the bytes of a call, or its value, spelled, or the kind and words of its error."""
    try:
        result = act(*arguments)
    except (NotCarried, PeerViolation, BufferError) as problem:
        return type(problem).__name__, str(problem)
    if act in (encode, encode_loosely, alone.encode, alone.encode_loosely):
        return "bytes", result
    with room_for_nesting():
        return "value", spelled(result)


def assert_encoded_alike(value: Any) -> None:
    assert outcome(encode, value) == outcome(alone.encode, value)
    assert outcome(encode_loosely, value) == outcome(alone.encode_loosely, value)
    assert outcome(encode_loosely, value, 1) == outcome(alone.encode_loosely, value, 1)


def assert_decoded_alike(data: bytes) -> None:
    expected = outcome(alone.decode, data)
    for read in (decode, decode_dicts):
        assert outcome(read, data) == expected
        assert outcome(read, memoryview(b"\x00" + data)[1:]) == expected


@given(carried)
def test_carried_values_have_the_same_bytes(value: Any) -> None:
    assert_encoded_alike(value)
    assert_decoded_alike(encode(value))


@given(anything)
def test_whatever_is_put_is_carried_or_refused_alike(value: Any) -> None:
    assert_encoded_alike(value)


@given(rows)
def test_dicts_have_the_same_bytes_and_come_back_alike(value: Any) -> None:
    assert_encoded_alike(value)
    assert_decoded_alike(encode(value))


AROUND: list[Callable[[Any], Any]] = [
    lambda v: v,
    lambda v: [v],
    lambda v: {"k": v},
    lambda v: {"k": 1, "v": [v, b"\xc4"]},
    lambda v: ({"k": (v,)},),
    lambda v: {1: v},
    lambda v: {"a": 1, 2: (v,)},
]


@pytest.mark.parametrize("value", [*HASHABLE_ODDS, *OTHER_ODDS, TOO_LONG], ids=lambda value: type(value).__name__)
def test_what_would_not_come_back_is_refused_wherever_it_is(value: Any) -> None:
    for put in AROUND:
        with pytest.raises((NotCarried, BufferError)):  # the latter of a memoryview with gaps
            encode(put(value))


@pytest.mark.parametrize(
    "value", [*HASHABLE_ODDS, *OTHER_ODDS, *EDGES, TOO_LONG], ids=lambda value: type(value).__name__
)
def test_odd_values_and_those_at_a_bound_are_encoded_alike(value: Any) -> None:
    for put in AROUND:
        assert_encoded_alike(put(value))
    try:
        hash(value)
    except (TypeError, ValueError):
        return
    for each in ({value: 1}, [{"a": 1}, {"b": 2, value: 1}], ({(value, 1): 1},)):
        assert_encoded_alike(each)


@pytest.mark.parametrize("value", EDGES, ids=lambda value: type(value).__name__)
def test_values_at_a_bound_come_back_alike(value: Any) -> None:
    rows = 20 if len(encode(value)) < 1000 else 2
    for each in (value, [value], [{"k": value, "number": number} for number in range(rows)]):
        assert_decoded_alike(encode(each))


@pytest.mark.parametrize(
    "make",
    [lambda: ormsgpack.Ext(1, b"\x90"), lambda: ormsgpack.Ext(9, b""), lambda: ormsgpack.Fragment(b"\x01")],
    ids=["tuple", "extension", "fragment"],
)
@pytest.mark.parametrize("act", [encode, encode_loosely])
def test_what_only_ormsgpack_would_write_is_refused(make: Callable[[], Any], act: Callable[[Any], bytes]) -> None:
    for put in (lambda v: v, lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: {1: [{"k": (v,)}]}):
        with pytest.raises(NotCarried, match=r"ormsgpack\.\w+ cannot be encoded; use dict"):
            act(put(make()))


FAST = [1, "a", [1, 2.5, None], {"a": [{"b": (1, Decimal(2))}]}, (1, (datetime(2026, 1, 1), 2**70)), [["a"], [1]]]


def test_ormsgpack_writes_and_reads_what_is_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise everything would be right, and slow."""

    def never(*arguments: Any, **options: Any) -> Any:
        pytest.fail("msgpack was asked")

    dicts = encode([{"user": "a", "number": number} for number in range(20)])
    monkeypatch.setattr(values, "_Packer", never)
    for value in FAST:
        assert encode(value) == encode_loosely(value) == alone.encode(value)
    monkeypatch.setattr(values, "_unpackb", never)
    assert decode_dicts(dicts) == alone.decode(dicts)


# -- nesting -------------------------------------------------------------------------------------------------


def lists(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def dicts(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = {"k": inner}
    return inner


def tuples(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = (inner,)
    return inner


DEPTHS = [*range(250, 258), *range(NESTING_MAX - 3, NESTING_MAX + 4), 100_000]


@pytest.mark.parametrize("nest", [lists, dicts])
@pytest.mark.parametrize(
    "inner",
    [1, (1,), {1}, *map(campaign, ["a", b"\x01", {1: 2}, [1], bytearray(b"x"), msgpack.ExtType(9, b""), 10**70])],
    ids=repr,
)
def test_nesting_has_the_same_bound(nest: Callable[[int, Any], Any], inner: Any) -> None:
    for levels in DEPTHS:
        value = nest(levels, inner)
        assert_encoded_alike(value) if levels < 2000 else pytest.raises(NotCarried, encode, value)
        for around in ((value,), [({"k": value},)]):
            assert outcome(encode, around) == outcome(alone.encode, around)


@pytest.mark.parametrize("nest", [lists, dicts])
@pytest.mark.parametrize("inner", [[], {}], ids=repr)
def test_what_could_not_be_read_is_not_written(nest: Callable[[int, Any], Any], inner: Any) -> None:
    """An empty list needs no room of msgpack's writer for its items, but of its reader."""
    for around in (lambda value: value, lambda value: (value,), lambda value: {"k": (1, [(value,)])}):
        deepest = around(nest(NESTING_MAX - 3, inner))
        assert decode(encode(deepest)) is not None
        with pytest.raises(NotCarried, match="nested too deeply; the limit is 1024 lists and dicts"):
            encode(around(nest(NESTING_MAX, inner)))


@pytest.mark.parametrize("levels", range(TUPLE_DEPTH_MAX - 2, TUPLE_DEPTH_MAX + 3))
@pytest.mark.parametrize("inner", [1, [], {1: 2}, {1}, "\ud800"], ids=repr)
def test_tuples_have_the_same_bound(levels: int, inner: Any) -> None:
    for value in (tuples(levels, inner), {1: tuples(levels, inner)}, [{"k": tuples(levels, inner)}] * 30):
        assert_encoded_alike(value)
        try:
            packed = encode(value)
        except NotCarried:
            continue
        assert_decoded_alike(packed)


def test_nesting_within_many_tuples_takes_no_exponential_time() -> None:
    for inner in (lists(300, 1), {1: 2}, {1}, "\ud800", lists(2000, 1)):
        for levels in (20, TUPLE_DEPTH_MAX - 1):
            for value in (tuples(levels, inner), {1: tuples(levels, inner)}, tuples(levels, {1: (inner,)})):
                assert_encoded_alike(value)


def test_circles_are_refused_alike() -> None:
    circle: list[Any] = []
    circle.append(circle)
    through: dict[str, Any] = {}
    through["k"] = ({"k": through},)
    for value in (circle, through):
        assert outcome(encode, value) == outcome(alone.encode, value)


# -- hostile bytes -----------------------------------------------------------------------------------------


def _damaged(data: bytes, chance: random.Random) -> bytes:
    hostile = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(hostile) + 1)
        act = chance.randrange(5)
        if act == 0 and place < len(hostile):
            hostile[place] = chance.randrange(256)
        elif act == 1 and place < len(hostile):
            hostile[place] = chance.choice(
                (0x80, 0x81, 0x90, 0x91, 0xA1, 0xC0, 0xC1, 0xC4, 0xC7, 0xD4, 0xDC, 0xDD, 0xDF)
            )
        elif act == 2:
            del hostile[place:]
        elif act == 3:
            hostile[place:place] = chance.randbytes(chance.randint(1, 4))
        else:
            hostile += data[chance.randrange(len(data)) :] or b"\xc0"
    return bytes(hostile)


KEPT = [
    [{"user": f"u{number}", "n": number, "v": number / 7, "ok": number % 2 == 0} for number in range(12)],
    [{"at": datetime(2026, 1, 1), "pair": (number, ("a", 1.5)), "price": Decimal(number)} for number in range(8)],
    [{"ключ": "значение", "e": b"bytes", "l": [1, [2, {"k": None}]]} for _ in range(8)],
    [{f"field {number}": number for number in range(20)} for _ in range(3)],
]


@pytest.mark.parametrize("value", KEPT, ids=range(len(KEPT)))
def test_damaged_dicts_are_read_or_refused_alike(value: Any) -> None:
    packed, chance = encode(value), random.Random(0)
    for _ in range(1500):
        assert_decoded_alike(_damaged(packed, chance))


@given(rows, st.randoms(use_true_random=False))
def test_any_damaged_dicts_are_read_or_refused_alike(value: Any, chance: random.Random) -> None:
    assert_decoded_alike(_damaged(encode(value), chance))


def hostile_tuples(levels: int) -> bytes:
    """Return bytes of tuples within one another; without a bound they would overflow the C stack."""
    packed = b"\x90"
    for _ in range(levels):
        packed = msgpack.packb(msgpack.ExtType(1, b"\x91" + packed))
    return packed


_ROW = b"\x82\xa1a\x01\xa1b\xa5hello"
_ROWS = b"\xdc\x00\x20" + _ROW * 31
_MARK = values._END_BYTES
HOSTILE = {
    "nothing behind": _ROWS + _ROW,
    "one row short": _ROWS,
    "one more value": _ROWS + _ROW + b"\x01",
    "one more list": _ROWS + _ROW + b"\x90",
    "the end": _ROWS + _ROW + b"\xaf" + _MARK,
    "the end with another mark": _ROWS + _ROW + b"\xd9" + bytes([len(_MARK)]) + _MARK,
    "the end with a mark of two": _ROWS + _ROW + b"\xda\x00" + bytes([len(_MARK)]) + _MARK,
    "the end with a mark of four": _ROWS + _ROW + b"\xdb\x00\x00\x00" + bytes([len(_MARK)]) + _MARK,
    "the end as bytes": _ROWS + _ROW + b"\xc4" + bytes([len(_MARK)]) + _MARK,
    "the mark of the end": _ROWS + _ROW + b"\xaf",
    "half a mark": _ROWS + _ROW + b"\xd9",
    "a mark of two without its second": _ROWS + _ROW + b"\xda\x00",
    "a text that takes the end": _ROWS + b"\x81\xa1a\xb0",
    "the end within": b"\xdc\x00\x20" + b"\x81\xa1a\xaf" + _MARK + _ROW * 31,
    "a key that is a list": _ROWS + b"\x81\x90\x01",
    "a key that is a dict": _ROWS + b"\x81\x80\x01",
    "a key that is a tuple": _ROWS + b"\x81\xc7\x02\x01\x91\x01\x01",
    "a key that is a number": _ROWS + b"\x81\x01\x01",
    "a key twice": _ROWS + b"\x83\xa1a\x01\xa1b\x02\xa1a\x03",
    "a surrogate": _ROWS + b"\x81\xa1a\xa3\xed\xa0\x80",
    "a key with a surrogate": _ROWS + b"\x81\xa3\xed\xa0\x80\x01",
    "no UTF-8": _ROWS + b"\x81\xa1a\xa1\xff",
    "a key that is no UTF-8": _ROWS + b"\x81\xa1\xff\x01",
    "overlong UTF-8": _ROWS + b"\x81\xa1a\xa2\xc0\x80",
    "an unknown extension": _ROWS + b"\x81\xa1a\xd4\x63\x00",
    "a timestamp": _ROWS + b"\x81\xa1a\xd6\xff\x00\x00\x00\x01",
    "a wrong timestamp": _ROWS + b"\x81\xa1a\xd5\xff\x00\x00",
    "a tuple with more behind": _ROWS + b"\x81\xa1a\xc7\x03\x01\x91\x01\x02",
    "a tuple that is no list": _ROWS + b"\x81\xa1a\xd4\x01\x01",
    "a wrong time": _ROWS + b"\x81\xa1a\xd4\x02\x31",
    "a wrong Decimal": _ROWS + b"\x81\xa1a\xd4\x03\x78",
    "a reserved mark": _ROWS + b"\x81\xa1a\xc1",
    "a long array": _ROWS + b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "a long map": _ROWS + b"\x81\xa1a\xdf\xff\xff\xff\xff",
    "long bytes": _ROWS + b"\x81\xa1a\xc6\xff\xff\xff\xff",
    "a long text": _ROWS + b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "a long key": _ROWS + b"\x81\xdb\xff\xff\xff\xff",
    "a long extension": _ROWS + b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "arrays within arrays": _ROWS + b"\x81\xa1a" + b"\xdc\xff\xff" * 900,
    "deep lists": _ROWS + b"\x81\xa1a" + b"\x91" * 1010 + b"\x01",
    "deeper lists": _ROWS + b"\x81\xa1a" + b"\x91" * 5000,
    **{f"{levels} tuples": hostile_tuples(levels) for levels in (TUPLE_DEPTH_MAX + 1, 200, 5000)},
    "a text in a tuple": b"\xc7\x02\x01\xa1a",
    "a dict in a tuple": b"\xc7\x03\x01\x81\x01\x02",
    "half a list in a tuple": b"\xc7\x03\x01\x93\x01",
    "an empty extension": b"\xc7\x00\x63",
    "a wrong number": b"\xc7\x03\x04abc",
    "a number that is no text": b"\xc7\x01\x04\xff",
    "a time that is no text": b"\xc7\x01\x02\xff",
    "deep dicts": _ROWS + b"\x81\xa1a" * 1100 + b"\x01",
    "small numbers at length": _ROWS + b"\x81\xa1a\xcf\x00\x00\x00\x00\x00\x00\x00\x01",
    "a float of four bytes": _ROWS + b"\x81\xa1a\xca\x3f\x80\x00\x00",
    "NaN with a payload": _ROWS + b"\x81\xa1a\xcb\x7f\xf4\x00\x00\x00\x00\x00\x01",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_dicts_are_read_or_refused_alike(data: bytes) -> None:
    assert_decoded_alike(data)
    for cut in range(max(0, len(data) - 30), len(data)):
        assert_decoded_alike(data[:cut])


_WITH_LITTLE_MEMORY = """
import resource, sys
from causal.errors import PeerViolation
from causal.records.values import decode, decode_dicts
row = bytes.fromhex("82a16101a162a568656c6c6f")
claims = ["ddffffffff", "dd7fffffff", "dd07ffffff", "dfffffffff", "c6ffffffff", "dbffffffff", "c9ffffffff01"]
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
for read in (decode, decode_dicts):
    for claim in map(bytes.fromhex, claims):
        for data in (claim, b"\\x91" + claim, bytes.fromhex("dc0020") + row * 31 + b"\\x81\\xa1a" + claim * 3):
            try:
                read(data)
            except PeerViolation:
                continue
            sys.exit(f"{data!r} was read")
print("all refused", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_sizes_that_lie_take_no_memory() -> None:
    ended = subprocess.run([sys.executable, "-c", _WITH_LITTLE_MEMORY], capture_output=True, text=True)
    assert ended.stdout.startswith("all refused"), ended.stderr


def test_refused_dicts_leave_nothing_in_memory() -> None:
    hostile = [data for data in HOSTILE.values() if outcome(alone.decode, data)[0] != "value"]

    def refuse(times: int) -> int:
        for _ in range(times):
            for data in hostile:
                with pytest.raises(PeerViolation):
                    decode_dicts(data)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before_kib = refuse(20)
    assert refuse(60) - before_kib < 4096


# -- what hooks raise --------------------------------------------------------------------------------------


class _Once:
    """Stands for a function, and raises what a signal handler might at the first call."""

    def __init__(self, replaced: Callable[..., Any]) -> None:
        self.replaced, self.calls = replaced, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt
        return self.replaced(*arguments)


def test_an_interrupt_within_a_hook_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, spell = datetime(2026, 1, 1), values._datetime_bytes
    for value in (moment, [{"k": (1, (moment,))}], {1: (moment,)}):
        for act in (encode, encode_loosely):
            monkeypatch.setattr(values, "_datetime_bytes", _Once(spell))
            with pytest.raises(KeyboardInterrupt):
                act(value)
            assert act(value) == alone.encode(value)
    packed = encode([{"at": moment, "number": number} for number in range(20)])
    for read in (decode, decode_dicts):
        monkeypatch.setattr(values, "datetime", type("_", (), {"fromisoformat": _Once(datetime.fromisoformat)}))
        with pytest.raises(KeyboardInterrupt):
            read(packed)
        assert read(packed) == alone.decode(packed)


def test_threads_encode_and_decode_at_once() -> None:
    value = [{"at": datetime(2026, 1, 1), "pair": (number, ("a", 1.5)), "n": number} for number in range(40)]
    expected, wrong = alone.encode(value), list[Any]()

    def work() -> None:
        for _ in range(200):
            if encode(value) != expected or decode_dicts(expected) != value:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
