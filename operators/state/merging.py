"""The merge of consecutive snapshots of one chain into one, key group by key group.

The oldest snapshot usually is the largest. Its fragments are read one by one; those without a changed key are copied as
they are. Later snapshots are combined in memory: those that were merged before are divided by key group, so only one
group of each is in memory, whereas a snapshot that a task wrote as an increment is not divided.

A merged increment has the same effect on every state between the first barrier and the last one that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

from causal.errors import CorruptData
from operators.records.keys import key_groups_of
from operators.state.fragments import divided, packed, unpacked
from operators.state.merge_rules import BY_PAIR, LIST, MAP, WHOLE
from operators.state.snapshot_parts import header_part, is_increment, read_part, table_part, tables_of_part

KEYS_PER_FRAGMENT = 256

_GONE: Any = object()

Changes = dict[Any, Any]
"""Key -> its value in later snapshots, or `_GONE`."""


def part_count(rules: Mapping[str, str], key_groups: int) -> int:
    """Return the number of parts that `merged_parts` yields: a header, and a part for each key group."""
    return 1 + key_groups if rules else 1


def merged_parts(
    sources: Sequence[Iterable[bytes]], rules: Mapping[str, str], key_groups: int, complete: bool
) -> Iterator[bytes]:
    """Yield the parts of the snapshot that has the effect of `sources`, which are consecutive, oldest first.

    Args:
        rules: table -> how its values are merged.
        complete: whether the oldest snapshot is complete.

    Raises:
        CorruptData: a part cannot be read, or a value continues one that is missing.
    """
    snapshots = [_Snapshot(source, rules, key_groups) for source in sources]
    yield header_part({**snapshots[-1].header, "full": complete})
    for group in range(key_groups if rules else 0):
        oldest, *later = [snapshot.fragments_of(group) for snapshot in snapshots]
        changes: dict[str, Changes] = {}
        for tables in later:
            for name, fragments in tables.items():
                known = changes.setdefault(name, {})
                for fragment in fragments:
                    _combine(known, fragment, rules[name])
        names = dict.fromkeys([*oldest, *changes])
        yield table_part(
            group,
            {name: list(_merged(oldest.get(name, []), changes.get(name, {}), rules[name], complete)) for name in names},
        )
    for snapshot in snapshots:
        snapshot.end()


class _Snapshot:
    """The parts of one snapshot, whose key groups are requested in ascending order."""

    def __init__(self, parts: Iterable[bytes], rules: Mapping[str, str], key_groups: int) -> None:
        self._parts = iter(parts)
        self._rules = rules
        self._key_groups = key_groups
        self._undivided: dict[int, dict[str, list[bytes]]] = {}
        self._next: tuple[int, dict[str, list[bytes]]] | None = None
        header = None
        for part in self._parts:
            if not is_increment(part):
                header, _ = read_part(part)
                break
        if header is None:
            raise CorruptData("a snapshot has no header; restore it from a copy")
        self.header: dict[str, Any] = header
        self._advance()

    def _advance(self) -> None:
        """Read the next part of a key group; divide the parts before it that belong to none."""
        self._next = None
        for part in self._parts:
            group, tables = tables_of_part(part)
            self._check(tables)
            if group is not None:
                self._next = group, tables
                return
            for name, fragments in tables.items():
                for fragment in fragments:
                    self._divide(name, fragment)

    def _check(self, tables: Mapping[str, object]) -> None:
        for name in tables:
            if name not in self._rules:
                raise CorruptData(f"a snapshot has a table {name!r} that cannot be merged")

    def _divide(self, name: str, fragment: bytes) -> None:
        for group, share in divided(fragment, partial(self._groups, name)).items():
            self._undivided.setdefault(group, {}).setdefault(name, []).append(share)

    def _groups(self, name: str, keys: list[Any]) -> list[int]:
        routed = list(map(itemgetter(0), keys)) if self._rules[name].endswith(BY_PAIR) else keys
        return key_groups_of(routed, self._key_groups)

    def fragments_of(self, group: int) -> dict[str, list[bytes]]:
        """Return the fragments of a key group by table, in the order in which they are to be loaded."""
        tables = self._undivided.pop(group, {})
        while self._next is not None and self._next[0] <= group:
            if self._next[0] < group:
                raise CorruptData("the key groups of a snapshot are not in ascending order")
            for name, fragments in self._next[1].items():
                tables.setdefault(name, []).extend(fragments)
            self._advance()
        return tables

    def end(self) -> None:
        """Check that no part is left."""
        if self._next is not None or self._undivided:
            raise CorruptData("a snapshot has more key groups than its job")


def _combine(known: Changes, fragment: bytes, rule: str) -> None:
    """Add the changes in a fragment to those that precede it."""
    keys, values, gone = unpacked(fragment)
    for key in gone:
        known[key] = _GONE
    if rule.startswith(WHOLE):
        known.update(zip(keys, values, strict=True))
        return
    follow = _FOLLOW[rule.removesuffix(BY_PAIR)]
    for key, value in zip(keys, values, strict=True):
        known[key] = follow(known[key], value) if key in known else value


def _merged(oldest: Sequence[bytes], changes: Changes, rule: str, complete: bool) -> Iterator[bytes]:
    """Yield fragments with the effect of the oldest fragments and then the changes."""
    follow = _FOLLOW[rule.removesuffix(BY_PAIR)]
    for fragment in oldest:
        keys, values, gone = unpacked(fragment)
        if changes.keys().isdisjoint(keys) and changes.keys().isdisjoint(gone) and not (complete and gone):
            yield fragment
            continue
        kept_keys, kept_values = [], []
        for key, value in zip(keys, values, strict=True):
            change = changes.get(key, value)
            if change is value:
                kept_keys.append(key)
                kept_values.append(value)
            elif change is not _GONE:
                changes[key] = follow(value, change)
        for key in gone:
            if key in changes and changes[key] is not _GONE:
                changes[key] = follow(_GONE, changes[key])
        kept_gone = [] if complete else [key for key in gone if key not in changes]
        if kept_keys or kept_gone:
            yield packed((kept_keys, kept_values, kept_gone))
    yield from _added(changes, rule, complete)


def _added(changes: Changes, rule: str, complete: bool) -> Iterator[bytes]:
    left = iter(changes.items())
    while some := list(islice(left, KEYS_PER_FRAGMENT)):
        kept = [(key, value) for key, value in some if value is not _GONE]
        gone = [] if complete else [key for key, value in some if value is _GONE]
        if complete and not all(_is_whole(value, rule) for _, value in kept):
            raise CorruptData("a snapshot continues a value that the snapshots before it do not contain")
        if kept or gone:
            yield packed(([key for key, _ in kept], [value for _, value in kept], gone))


def _is_whole(value: Any, rule: str) -> bool:
    """Return whether a value does not depend on an earlier one."""
    if rule.startswith(LIST):
        return bool(value[0] == 0)
    return bool(value[0]) if rule.startswith(MAP) else True


def _instead(earlier: Any, later: Any) -> Any:
    return later


def _more_items(earlier: Any, later: Any) -> Any:
    """Combine two values of a list: (start, items from `start` on, age)."""
    start, items, age = later
    if not start:
        return later
    if earlier is _GONE or earlier[0] + len(earlier[1]) < start:
        raise CorruptData(f"a snapshot continues a list at {start}, which the snapshots before it do not contain")
    return earlier[0], [*earlier[1][: start - earlier[0]], *items], age


def _more_entries(earlier: Any, later: Any) -> Any:
    """Combine two values of a map: [whether it is whole, entries, their values, removed entries, ages]."""
    whole, entries, values, removed, ages = later
    if whole:
        return later
    if earlier is _GONE:
        raise CorruptData("a snapshot changes entries of a map that the snapshots before it do not contain")
    was_whole, was_entries, was_values, was_removed, was_ages = earlier
    known = dict(zip(was_entries, was_values, strict=True))
    aged = dict(zip(was_entries, was_ages or [None] * len(was_entries), strict=True))
    for entry in removed:
        known.pop(entry, None)
    known.update(zip(entries, values, strict=True))
    aged.update(zip(entries, ages or [None] * len(entries), strict=True))
    gone = [] if was_whole else list(dict.fromkeys([*was_removed, *removed]))
    kept = [] if not (was_ages or ages) else [aged[entry] for entry in known]
    return [was_whole, list(known), list(known.values()), gone, kept]


_FOLLOW = {WHOLE: _instead, LIST: _more_items, MAP: _more_entries}
