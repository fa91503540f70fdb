"""Typed state comes back as it was, and after its class has changed where nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Literal, NewType, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from causal.records.values import NotCarried, decode, encode
from operators.state.schema import codec_of


@dataclass(frozen=True, slots=True)
class Inner:
    at: tuple[int, str]
    when: datetime | None = None


@dataclass
class Outer:
    n: int
    inner: Inner
    many: list[Inner] = field(default_factory=list)
    named: dict[str, Inner] = field(default_factory=dict)
    maybe: Inner | None = None
    tail: tuple[Inner, ...] = ()
    free: Any = None


class Struct(msgspec.Struct, frozen=True):
    n: int
    label: str = "w"
    inner: Inner = Inner((1, "x"))


class Counted(TypedDict):
    n: int


Id = NewType("Id", int)

inners = st.builds(Inner, st.tuples(st.integers(), st.text(max_size=3)), st.none() | st.just(datetime(2026, 1, 2)))
outers = st.builds(
    Outer, st.integers(), inners, st.lists(inners, max_size=2), st.dictionaries(st.text(), inners, max_size=2),
    st.none() | inners, st.lists(inners, max_size=2).map(tuple), st.none() | st.lists(st.integers(), max_size=2),
)  # fmt: skip


def there_and_back(value: Any) -> Any:
    kind: Any = type(value)
    codec = codec_of(kind)
    packed = decode(encode(codec.pack(value)))
    return codec.reader(decode(encode(codec.shape)), "here")(packed)


@given(outers)
def test_objects_come_back_with_all_that_they_hold(value: Outer) -> None:
    assert repr(there_and_back(value)) == repr(value)
    copy = codec_of(Outer).own(value)
    assert copy == value and copy is not value and copy.many is not value.many


def test_structs_come_back_too() -> None:
    assert there_and_back(Struct(3, "v")) == Struct(3, "v")


def test_an_object_is_written_as_its_values() -> None:
    assert codec_of(Inner).pack(Inner((1, "x"))) == [(1, "x"), None]
    assert codec_of(Inner).shape == ["record", [["at", "tuple[int, str]"], ["when", "None | datetime"]]]


def test_a_class_that_does_things_when_it_is_made_does_not_do_them_again() -> None:
    restored = codec_of(Counting).reader(codec_of(Counting).shape, "")(codec_of(Counting).pack(Counting(1)))
    assert restored.n == 2


@dataclass
class Counting:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


def version(*fields: Any) -> Any:
    return codec_of(make_dataclass("Totals", fields))


BEFORE = version(("n", int), ("gone", str))


def test_a_field_that_is_added_takes_its_default_and_one_that_is_removed_is_dropped() -> None:
    now = version(("added", list, field(default_factory=list)), ("n", int, 0), ("label", str, "w"))
    read = now.reader(BEFORE.shape, "state 'total'")
    first, second = read([7, "x"]), read([8, "y"])
    assert (first.n, first.label, first.added) == (7, "w", [])
    assert first.added is not second.added
    assert not hasattr(first, "gone")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            [("n", str)],
            "state 'total' of operator 'p': field 'n' was int and is now str; add a new field and convert, or start",
        ),
        ([("n", int), ("m", int)], "state 'total' of operator 'p': field 'm' is new and has no default; add a default"),
        ([("n", list[int])], "field 'n' was int and is now list[int]"),
        ([("n", Inner)], "field 'n' was int and is now a record of at, when"),
    ],
)
def test_what_would_have_to_be_guessed_is_refused_in_one_line(fields: Any, line: str) -> None:
    with pytest.raises(PipelineError) as caught:
        version(*fields).reader(BEFORE.shape, "state 'total' of operator 'p'")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_records_within_records_change_alike() -> None:
    was: Any = codec_of(make_dataclass("Outer", [("many", list[make_dataclass("In", [("n", int)])])]))  # type: ignore[misc]
    now = codec_of(make_dataclass("Outer", [("many", list[make_dataclass("In", [("n", int), ("m", int, 3)])])]))  # type: ignore[misc]
    [item] = now.reader(was.shape, "")(was.pack(was.kind([was._fields[0][1]._item.kind(1)]))).many
    assert (item.n, item.m) == (1, 3)
    worse = codec_of(make_dataclass("Outer", [("many", list[make_dataclass("In", [("n", str)])])]))  # type: ignore[misc]
    with pytest.raises(PipelineError, match="field 'many': items: field 'n' was int and is now str"):
        worse.reader(was.shape, "state")


def test_any_reads_and_is_read_as_every_plain_type() -> None:
    assert codec_of(Any).reader("int", "")(3) == 3
    assert codec_of(int).reader("Any", "")(3) == 3
    with pytest.raises(PipelineError, match="was a record of at, when and is now Any"):
        codec_of(Any).reader(codec_of(Inner).shape, "state")


@pytest.mark.parametrize(
    ("hint", "shape"),
    [
        (int, "int"), (None, "None"), (list[int], "list[int]"), (dict[str, list[int]], "dict[str, list[int]]"),
        (int | None, "None | int"), (Literal["a", 1], "Literal['a', 1]"), (Counted, "dict"), (Id, "int"),
        (tuple[int, ...], "tuple[int, ...]"),
    ],
)  # fmt: skip
def test_what_is_carried_as_it_is_has_a_name(hint: Any, shape: str) -> None:
    codec = codec_of(hint)
    assert codec.plain and codec.shape == shape


class Itself:
    pass


@dataclass
class Holds:
    items: set[int]


@pytest.mark.parametrize(
    ("hint", "line"),
    [
        (set, "set; use a dict with None values"),
        (frozenset[int], "frozenset[int]; use a dict"),
        (Itself, "Itself; use int, float"),
        (Holds, r"set[int]; use a dict with None values (in Holds)"),
        (int | Inner, "which is a union with a record"),
        (dict[Inner, int], "whose keys are records"),
        (tuple[Inner, int], "at fixed places"),
    ],
)
def test_types_that_cannot_be_carried_are_named(hint: Any, line: str) -> None:
    with pytest.raises(TypeError) as caught:
        codec_of(hint)
    assert line in str(caught.value)


def test_an_object_of_another_class_is_not_packed() -> None:
    with pytest.raises(NotCarried, match="declared to hold Inner, not int"):
        codec_of(Inner).pack(3)


# Attributes that are no fields.


@dataclass
class Open:
    n: int = 0

    @cached_property
    def double(self) -> int:
        return 2 * self.n


class Derived(Open):
    def __init__(self) -> None:
        super().__init__()
        self.cache = 1


class Dynamic(msgspec.Struct, dict=True):
    n: int = 0


@pytest.mark.parametrize("make", [Open, Dynamic])
def test_an_attribute_that_is_no_field_is_refused(make: Any) -> None:
    value = make()
    codec = codec_of(make)
    assert codec.pack(value) == [0]
    value.cache = 1
    with pytest.raises(NotCarried, match=f"^{make.__name__}.cache is not a field; declare it as one$"):
        codec.pack(value)


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    n: T


def test_what_typing_notes_of_a_generic_object_is_no_attribute() -> None:
    assert codec_of(Box).pack(Box[int](3)) == [3]


def test_an_attribute_that_a_constructor_adds_is_refused() -> None:
    with pytest.raises(NotCarried, match=r"^Derived.cache is not a field"):
        codec_of(Derived).pack(Derived())


def test_a_cached_property_is_computed_again() -> None:
    value = Open(2)
    assert value.double == 4
    assert vars(there_and_back(value)) == {"n": 2}
