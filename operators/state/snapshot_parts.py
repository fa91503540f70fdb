"""The parts of a chain's snapshot: a header, a part with undivided state, and one part for each key group.

A complete snapshot is divided by key group, so another task can take over some of the groups, and a query loads only
one. An increment is not divided, so a query loads all increments. A complete snapshot may begin with a part that
contains the increment to the same barrier, for a standby that has loaded all earlier snapshots; other readers skip this
part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, overload

from causal.errors import CorruptData, PeerViolation, invariant
from causal.ports import SnapshotJob
from causal.records.values import decode, encode, encode_loosely
from operators.state.keyed_tables import KEYS_AT_ONCE, UNDIVIDED, FragmentJob
from operators.state.spool import Fragment, content_of

_FORMAT = 2
REPORTED = "told"
"""The key, in a stage's header, of the state that the stage last passed on; stored snapshots contain this key."""
INCREMENT_BYTES_MAX = 1 << 28
"""The size above which an increment is left out of a complete snapshot."""
_HEADER, _INCREMENT, _CELL = -1, -3, -4
"""The values that replace the key group in a header, in an increment and in the first part of a cell's snapshot."""


class ChainSnapshot:
    """The snapshot of all tables of a chain at one barrier (`causal.ports.SnapshotJob`)."""

    __slots__ = ("full", "_increment", "_header", "_jobs", "_left")

    def __init__(self, full: bool, header: dict[str, Any], jobs: Sequence[FragmentJob], increment: bytes = b"") -> None:
        self.full = full
        self._increment = increment
        self._header = header_part({**header, "full": full})
        self._jobs = list(jobs)
        self._left = list(jobs)

    def step(self, keys_max: int) -> bool:
        """Encode up to `keys_max` more keys, and return whether everything has been encoded."""
        invariant(keys_max > 0, "a step encodes something", keys_max=keys_max)
        while self._left:
            keys_max -= self._left[0].step(keys_max)
            if keys_max <= 0:
                return False
            del self._left[0]
        return True

    def parts(self, *before: bytes) -> Parts:
        """Return `before` and the parts that are not empty: increment, header, undivided part, and key groups."""
        invariant(not self._left, "parts are there when every step is done")
        groups: dict[int, dict[str, Sequence[Fragment]]] = {}
        for job in self._jobs:
            for group, fragments in job.fragments.items():
                groups.setdefault(group, {})[job.name] = fragments
        return Parts([*before, *filter(None, (self._increment,)), self._header], sorted(groups.items()))


class LazyParts(Sequence[bytes], ABC):
    """Parts, each of which is assembled on access, so that only few parts are in memory twice."""

    __slots__ = ()

    @abstractmethod
    def part(self, place: int) -> bytes:
        """Return the part at a place that exists."""

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self.part(each) for each in range(*place.indices(len(self)))]
        return self.part(range(len(self))[place])


class Parts(LazyParts):
    """The parts of a chain's snapshot."""

    __slots__ = ("_first", "_groups")

    def __init__(self, first: list[bytes], groups: list[tuple[int, dict[str, Sequence[Fragment]]]]) -> None:
        self._first = first
        self._groups = groups

    def __len__(self) -> int:
        return len(self._first) + len(self._groups)

    def part(self, place: int) -> bytes:
        first = self._first
        return first[place] if place < len(first) else table_part(*self._groups[place - len(first)])


def header_part(header: dict[str, Any]) -> bytes:
    """Return the part of a snapshot that contains `header`."""
    return encode([_FORMAT, _HEADER, header])


def table_part(group: int, fragments: Mapping[str, Sequence[Fragment]]) -> bytes:
    """Return the part of a snapshot that contains the fragments of one key group, by table.

    Raises:
        Unavailable: the disk that stores some of the fragments fails.
    """
    tables = {name: list(map(content_of, several)) for name, several in fragments.items()}
    return encode_loosely([_FORMAT, group, tables])  # fragments are bytes


def increment_part(behind: str, parts: Sequence[bytes]) -> bytes:
    """Return the part with the increment on the snapshot in file `behind`, or empty bytes if it is too large.

    The size is limited because a standby loads the whole part into memory.
    """
    if sum(map(len, parts)) > INCREMENT_BYTES_MAX:
        return b""
    return encode_loosely([_FORMAT, _INCREMENT, {"behind": behind, "parts": list(parts)}])


def increment_from(behind: str, changed: SnapshotJob) -> bytes:
    """Encode all changes since the snapshot in file `behind`, and return the part that contains them."""
    while not changed.step(KEYS_AT_ONCE):
        continue
    return increment_part(behind, list(changed.parts()))


def increment_of(part: bytes, behind: str) -> list[bytes] | None:
    """Return the parts of the increment on the snapshot in file `behind`, or None if `part` contains no such increment.

    Raises:
        CorruptData: `part` is not a part of a snapshot.
    """
    group, content = _opened(part)
    return content["parts"] if group == _INCREMENT and content["behind"] == behind else None


def cell_part(content: dict[str, Any]) -> bytes:
    """Return the part that precedes the snapshots of the subtasks of a cell."""
    return encode([_FORMAT, _CELL, content])


def cell_in(part: bytes) -> dict[str, Any] | None:
    """Return the content of a part that precedes the snapshots of the subtasks of a cell, or None for another part.

    Raises:
        CorruptData: `part` is not a part of a snapshot.
    """
    group, content = _opened(part)
    return content if group == _CELL else None


def is_increment(part: bytes) -> bool:
    """Return whether a part contains an increment.

    Raises:
        CorruptData: `part` is not a part of a snapshot.
    """
    return _opened(part)[0] == _INCREMENT


def read_part(part: bytes) -> tuple[dict[str, Any] | None, dict[str, list[bytes]]]:
    """Return (header, {}) or (None, fragments by table) for a part of `ChainSnapshot`, or (None, {}) for an increment.

    Raises:
        CorruptData: `part` is not a part of a snapshot.
    """
    group, content = _opened(part)
    if group == _INCREMENT:
        return None, {}
    return (content, {}) if group == _HEADER else (None, content)


def group_of_part(part: bytes) -> int | None:
    """Return the key group of a part, or None for the header and the undivided part, which every key needs.

    Raises:
        CorruptData: `part` is not a part of a snapshot.
    """
    group, _ = _opened(part)
    return None if group in (_HEADER, UNDIVIDED) else group


def tables_of_part(part: bytes) -> tuple[int | None, dict[str, list[bytes]]]:
    """Return (key group, fragments by table) for a part after the header; the key group is None for an undivided part.

    Raises:
        CorruptData: `part` is not such a part.
    """
    group, content = _opened(part)
    if group < 0 and group != UNDIVIDED:
        raise CorruptData("a snapshot has a second header; restore it from a copy")
    return None if group == UNDIVIDED else group, content


def _opened(part: bytes) -> tuple[int, dict[str, Any]]:
    try:
        content = decode(part)
    except PeerViolation as problem:
        raise CorruptData(f"a part of a snapshot cannot be read: {problem}") from None
    if type(content) is not list or len(content) != 3 or content[0] != _FORMAT or type(content[2]) is not dict:
        raise CorruptData("a part of a snapshot has an unknown form; another version of causal-streams wrote it")
    return content[1], content[2]
