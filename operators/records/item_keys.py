"""Extraction of keys that are an item of the record, or the record itself, without calling a key function per record.

`itemgetter(1)`, `lambda row: row[1]` and `def key(row): return row[1]` all return item 1; `lambda word: word` returns
the record. Such functions are recognised by their code, which must do nothing else. Rows that are stored as columns
already contain these keys; for a list of records, the keys are extracted in C. If the extraction fails, the function is
called, so that any error comes from the function itself.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Any

from causal.records.rows import Batch

_WRITTEN: tuple[Callable[[Any], Any], ...] = (
    lambda record: record[0],
    lambda record: record[1],
    lambda record: record[2],
    lambda record: record[3],
    lambda record: record[4],
    lambda record: record[5],
    lambda record: record[6],
    lambda record: record[7],
)
"""The recognised functions, as this Python version compiles them; they cover only the first few items."""
_OTHER_KINDS = (
    inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
)  # fmt: skip

RECORD = -1
"""The item number that represents the record itself."""

_Steps = list[tuple[str, object, type]]


def item_of(key_of: Callable[[Any], Any] | None) -> int | None:
    """Return the index of the item that `key_of` returns, or `RECORD`, or None if `key_of` is not recognised."""
    if type(key_of) is itemgetter:
        items: tuple[Any, ...] = key_of.__reduce__()[1]  # type: ignore[assignment]
        item = items[0]
        return item if len(items) == 1 and type(item) is int and 0 <= item < len(_WRITTEN) else None
    if type(key_of) is not FunctionType:
        return None
    code = key_of.__code__
    if (code.co_argcount, code.co_kwonlyargcount) != (1, 0) or code.co_flags & _OTHER_KINDS:
        return None
    steps = _steps(code)
    if steps == _template_of_record():
        return RECORD
    return next((item for item, known in enumerate(_templates()) if steps == known), None)


def keys_in(records: Any, item: int | None) -> list[Any] | Exception:
    """Return a new list with item `item` of each record (`RECORD`: the record itself), or the first error."""
    if isinstance(records, Batch) and (known := records.keys_at(item)) is not None:
        return known
    if item is None:
        return LookupError("the key is not an item of the record")
    if item == RECORD:
        return list(records)
    try:
        keys = list(map(itemgetter(item), records))
    except Exception as problem:
        return problem
    return keys if len(keys) == len(records) else RuntimeError("StopIteration was raised")


def _steps(code: CodeType) -> _Steps:
    """Return the instructions of the code, in which constants appear as values and variables as indexes."""
    steps: _Steps = []
    for step in dis.get_instructions(code):
        value = step.argval if "CONST" in step.opname or "INT" in step.opname else step.arg
        steps.append((step.opname, value, type(value)))
    return steps


@cache
def _template_of_record() -> _Steps:
    return _steps((lambda record: record).__code__)


@cache
def _templates() -> list[_Steps]:
    return [_steps(function.__code__) for function in _WRITTEN]
