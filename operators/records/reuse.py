"""Refusal of records whose dict, list or buffer is refilled for a later record.

A batch is encoded at the end of its event, so all records that share a reused object would have the content of the last
of these records. How many records a batch contains depends on the load. A stage therefore remembers the content of its
most recent records beyond the end of their event, and refuses a function that reuses objects regardless of the batch
size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from operators.records.ownership import SCALARS, all_scalar, is_buffer

REMEMBERED_MAX = 8
"""The maximum number of containers, and of buffers, that a stage remembers; a function may refill several in turn."""
LOOKED_AT_MAX = 8
"""The maximum number of dicts and lists that are examined per record."""
ITEMS_MAX = 1000
"""The maximum size of a container that is examined; copying a larger container for each batch would be too slow."""
LAST = 4
"""The number of records that are examined at the end of a batch."""
NESTING = frozenset((dict, list, tuple))


class Reuse:
    """The dicts, lists and buffers in the most recent batches that a function returned, with their content then."""

    __slots__ = ("_again", "_buffers", "_copies")

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        """Identity → (container, copy of the container), oldest first."""
        self._buffers: dict[int, Callable[[], Any]] = {}
        self._again: list[Any] = []
        """The containers in the batch's first record that were already remembered when the function returned it."""

    def keep(self, records: Sequence[Any]) -> None:
        """Remember the first record of a batch before the function is called again."""
        record = records[0]
        if type(record) not in NESTING:
            return
        copies, self._again = self._copies, []
        for container in containers_in(record):
            if id(container) in copies:
                self._again.append(container)
            elif len(container) <= ITEMS_MAX:
                if len(copies) == REMEMBERED_MAX:
                    del copies[next(iter(copies))]
                copies[id(container)] = (container, container.copy())

    def check(self, records: Sequence[Any], operator: str) -> None:
        """Refuse a batch in which a record is an earlier record that was refilled.

        The check costs one copied record per batch and a comparison with the most recent records. A record that is
        repeated unchanged is accepted.

        Raises:
            TypeError: the batch is refused; the message contains the remedy.
        """
        if not records:
            return
        last, copies = records[-1], self._copies
        if type(last) in NESTING and copies:
            alone = len(records) == 1
            for record in self._again if alone else (*records[-LAST:-1], *containers_in(last)):
                if id(record) in copies and _differ(*copies[id(record)]):
                    kind = type(record).__name__
                    raise TypeError(
                        f"{operator!r} emitted the same {kind} for several records and changed it in between, "
                        f"so all records of the batch have its last content; emit {kind}(…), or a new one for "
                        "each record"
                    )
        if type(records[0]) not in SCALARS:
            buffers = buffers_in(records[0])
            if buffers:
                self._check_buffers(records, buffers, operator)

    def _check_buffers(self, records: Sequence[Any], buffers: list[Any], operator: str) -> None:
        """Refuse a buffer that is shared by two records; `buffers` are the buffers in the first record."""
        refuse_shared_buffers(records, operator)
        for buffer in buffers:
            earlier = self._buffers.get(id(buffer))
            if earlier is not None and earlier() is buffer:
                raise _shared(buffer, operator)
        for buffer in buffers + (buffers_in(records[-1]) if len(records) > 1 else []):
            self._buffers.pop(id(buffer), None)
            if len(self._buffers) == REMEMBERED_MAX:
                del self._buffers[next(iter(self._buffers))]
            self._buffers[id(buffer)] = _watched(buffer)


def refuse_shared_buffers(records: Sequence[Any], operator: str) -> None:
    """Refuse a batch in which two records share a buffer, because refilling the buffer has changed the earlier record.

    The check examines only the first record unless that record contains a buffer.

    Raises:
        TypeError: the batch is refused; the message contains the remedy.
    """
    if len(records) < 2 or type(records[0]) in SCALARS or not buffers_in(records[0]):
        return
    seen: dict[int, int] = {}
    for index, record in enumerate(records):
        for buffer in buffers_in(record):
            if seen.setdefault(id(buffer), index) != index:
                raise _shared(buffer, operator)


def buffers_in(value: Any) -> list[Any]:
    """Return the buffers at any depth of a record."""
    buffers: list[Any] = []
    entered = set[int]()  # a record may contain itself, or the same list in many places
    waiting = [value]
    while waiting:  # a loop, because records may be nested more deeply than calls can be
        each = waiting.pop()
        kind = type(each)
        if kind is dict or kind is list or kind is tuple:
            items = each.values() if kind is dict else each
            if not all_scalar(map(type, items)) and id(each) not in entered:
                entered.add(id(each))
                waiting.extend(items)
        elif kind not in SCALARS and is_buffer(each):
            buffers.append(each)
    return buffers


def containers_in(record: Any) -> list[Any]:
    """Return the first few dicts and lists in a record, including the record itself."""
    kind = type(record)
    if kind is dict:
        if all_scalar(map(type, record.values())):
            return [record]
    elif kind is list and all_scalar(map(type, record)):
        return [record]
    waiting = [record]
    for each in waiting:
        if len(each) <= ITEMS_MAX:
            items = each.values() if type(each) is dict else each
            waiting += [item for item in items if type(item) in NESTING][: LOOKED_AT_MAX - len(waiting)]
    return [each for each in waiting if type(each) is not tuple]


def _differ(container: Any, copy: Any) -> bool:
    try:
        return bool(container != copy)
    except (TypeError, ValueError, RecursionError):  # raised for values that cannot be compared, such as arrays
        return False


def _watched(buffer: Any) -> Callable[[], Any]:
    """Return a function that returns the buffer as long as it exists; a strong reference would keep a file mapped."""
    try:
        return ref(buffer)
    except TypeError:
        return lambda: buffer


def _shared(buffer: Any, operator: str) -> TypeError:
    return TypeError(
        f"{operator!r} emitted the same {type(buffer).__name__} in two records, so both have its last content; "
        "emit bytes(…), or a new one for each record"
    )
