"""The rows that differ between two performances, side by side: changed, only before, or only after (0056).

A key decides which rows are shown side by side. It never decides whether rows differ.
"""

from __future__ import annotations

import dis
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType
from typing import Any

from operators.graph import Node, ancestors
from operators.replay.performance import Step

EXAMPLES_MAX = 20
"""The rows of each kind that are kept as examples."""
KEYS_MAX = 10_000
"""The keys whose differing rows are counted one by one."""
FIELDS_MAX = 1_000
ROW_CHARACTERS_MAX = 4_000
"""The characters of a row that are kept as an example."""
_DEPTH_MAX = 4
WHOLE = "(row)"
"""The field of a row that is not an object or a list of the same length."""
ORDER = "(order of fields)"

FIELD, FIRST, TABLE, ABSENT = "field", "first", "table", ""


@dataclass(frozen=True, slots=True)
class RowKey:
    """The way in which the key of a sink's rows is found.

    Attributes:
        kind: FIELD for fields of an object, FIRST for the first item of a list, TABLE for the key of a table or
            message, ABSENT if rows have no key.
    """

    kind: str = ABSENT
    fields: tuple[str, ...] = ()

    def of(self, row: Any) -> Hashable:
        """Return the key of a row as text; None if it has none."""
        if self.kind == FIRST and isinstance(row, list) and row:
            return json.dumps(row[0], ensure_ascii=False)
        if self.kind == TABLE and isinstance(row, dict):
            return str(row.get("key"))
        if self.kind == FIELD and isinstance(row, dict) and all(name in row for name in self.fields):
            values = [row[name] for name in self.fields]
            return json.dumps(values[0] if len(values) == 1 else values, ensure_ascii=False)
        return None

    def __str__(self) -> str:
        if self.kind == FIELD:
            return f"field{'s' * (len(self.fields) > 1)} {', '.join(self.fields)}"
        return {FIRST: "first item", TABLE: "key"}.get(self.kind, "none")


def row_key(sink: Node, sample: Any) -> RowKey:
    """Return how the key of a sink's rows is found, from the pipeline and one row.

    The key is that of a table or message; otherwise the field by which the stream was keyed last, the field `key`, or
    the first item of a list.
    """
    if sink.subject.upsert:
        return RowKey(TABLE)
    if isinstance(sample, dict):
        names = [name for node in ancestors(sink) for edge in node.edges if (name := field_of(edge.key_of))]
        known = next((name for name in (*names, "key") if name in sample), None)
        return RowKey() if known is None else RowKey(FIELD, (known,))
    keyed = any(edge.key_of is not None for node in ancestors(sink) for edge in node.edges)
    return RowKey(FIRST) if keyed and isinstance(sample, list) and sample else RowKey()


def field_of(key_of: Callable[[Any], Any] | None) -> str:
    """Return the field that a function such as `lambda row: row["user"]` returns; empty if it does anything else."""
    if type(key_of) is itemgetter:
        items: tuple[Any, ...] = key_of.__reduce__()[1]  # type: ignore[assignment]
        return items[0] if len(items) == 1 and isinstance(items[0], str) else ""
    if type(key_of) is not FunctionType:
        return ""
    steps = list(dis.get_instructions(key_of))
    if [step.opname for step in steps] != [step.opname for step in dis.get_instructions(_one_field)]:
        return ""
    names = [step.argval for step in steps if step.opname == "LOAD_CONST"]
    return names[0] if len(names) == 1 and isinstance(names[0], str) else ""


_one_field: Callable[[Any], Any] = lambda row: row["field"]  # noqa: E731


@dataclass(frozen=True, slots=True)
class Side:
    """A differing row of one performance.

    Attributes:
        task: the subtask that would write it.
        step: the step that caused it.
    """

    row: str
    task: str
    step: Step


@dataclass(frozen=True, slots=True)
class Pair:
    """Differing rows side by side.

    Attributes:
        key: the key as text; None if the rows have none.
        before, after: the rows; one of them is None if only the other performance has one.
        fields: the fields that differ, if there are both.
    """

    key: str | None
    before: Side | None
    after: Side | None
    fields: tuple[str, ...] = ()


@dataclass(slots=True)
class Pairs:
    """The differing rows of one sink, counted; some of them are kept as examples.

    Attributes:
        changed, only_before, only_after: the numbers of pairs and of rows.
        fields: field → the number of changed rows in which it differs.
        keys: key → [changed, only before, only after], for the first `KEYS_MAX` keys.
        keys_left_out: whether there were more.
        examples: pairs of each kind; a changed row with other fields is another kind.
    """

    changed: int = 0
    only_before: int = 0
    only_after: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    keys: dict[str, list[int]] = field(default_factory=dict)
    keys_left_out: bool = False
    examples: dict[tuple[str, ...], list[Pair]] = field(default_factory=dict)

    def add(self, pair: Pair) -> None:
        """Count a pair, and keep it if it is among the first of its kind."""
        kind, place = _kind(pair)
        self.changed += place == 0
        self.only_before += place == 1
        self.only_after += place == 2
        for name in pair.fields:
            if name in self.fields or len(self.fields) < FIELDS_MAX:
                self.fields[name] += 1
        if pair.key is not None:
            known = self.keys.get(pair.key)
            if known is None and len(self.keys) < KEYS_MAX:
                known = self.keys[pair.key] = [0, 0, 0]
            if known is None:
                self.keys_left_out = True
            else:
                known[place] += 1
        if kind in self.examples or len(self.examples) < EXAMPLES_MAX:
            kept = self.examples.setdefault(kind, [])
            if len(kept) < EXAMPLES_MAX:
                kept.append(pair)

    def shown(self) -> Iterator[Pair]:
        """Return examples, beginning with one of each kind."""
        for place in range(EXAMPLES_MAX):
            for pairs in self.examples.values():
                yield from pairs[place : place + 1]


def _kind(pair: Pair) -> tuple[tuple[str, ...], int]:
    if pair.before is not None and pair.after is not None:
        return ("changed", *pair.fields), 0
    return (("only before",), 1) if pair.after is None else (("only after",), 2)


def paired(before: Sequence[Side], after: Sequence[Side], key: RowKey) -> Iterator[Pair]:
    """Yield the rows side by side: those of the same step and key first, then those of the same key, in their order.

    Rows without a key are paired only within a step, and only if there are equally many.
    """
    read = [[_Read(side, *_content(side.row, key)) for side in own] for own in (before, after)]
    yield from _matched(read[0], read[1], lambda each: (each.key, each.side.step), False)
    yield from _matched(read[0], read[1], lambda each: each.key, True)
    for place, own in enumerate(read):
        for each in own:
            if not each.paired:
                yield Pair(each.key, each.side if not place else None, each.side if place else None)


@dataclass(slots=True)
class _Read:
    side: Side
    content: Any
    key: Any
    paired: bool = False


def _content(row: str, key: RowKey) -> tuple[Any, Any]:
    try:
        content = json.loads(row)
    except ValueError:
        return row, None
    return content, key.of(content)


def _matched(
    before: Iterable[_Read], after: Iterable[_Read], by: Callable[[_Read], Hashable], keyed: bool
) -> Iterator[Pair]:
    waiting: defaultdict[Hashable, tuple[deque[_Read], deque[_Read]]] = defaultdict(lambda: (deque(), deque()))
    for place, own in enumerate((before, after)):
        for each in own:
            if not each.paired and (each.key is not None or not keyed):
                waiting[by(each)][place].append(each)
    for olds, news in waiting.values():
        if olds and news and (olds[0].key is not None or len(olds) == len(news)):
            for old, new in zip(olds, news):
                old.paired = new.paired = True
                yield Pair(old.key, old.side, new.side, tuple(differing(old.content, new.content)) or (WHOLE,))


def differing(before: Any, after: Any, path: str = "", depth: int = 0) -> list[str]:
    """Return the paths of the fields in which two rows differ, such as `total` or `items[0].price`."""
    deep = depth < _DEPTH_MAX
    if deep and isinstance(before, dict) and isinstance(after, dict):
        paths: list[str] = []
        for name in (*before, *(name for name in after if name not in before)):
            own = f"{path}.{name}" if path else name
            if name in before and name in after:
                paths += differing(before[name], after[name], own, depth + 1)
            else:
                paths.append(own)
        return paths or ([] if list(before) == list(after) else [f"{path} {ORDER}".strip()])
    if deep and isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [name for at, (old, new) in pairs for name in differing(old, new, f"{path}[{at}]", depth + 1)]
    same = type(before) is type(after) and json.dumps(before) == json.dumps(after)  # NaN, 1 and 1.0, 0.0 and -0.0
    return [] if same else [path or WHOLE]
