"""Analysis of a function's code to show that the function changes no arguments, which then need no copies."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

from operators.records.ownership import SCALARS

_CALLED = frozenset(
    "abs all any bool dict enumerate float int isinstance len list max min range round set sorted str sum tuple zip "
    "copy count endswith format get isoformat items join keys lower replace split startswith strip upper "
    "values".split()
)
"""Built-in functions, and methods of records, that do not change their arguments."""


def only_reads(fn: Callable[..., Any]) -> bool:
    """Return whether the function certainly modifies no object and calls nothing that modifies one."""
    if type(fn) is not FunctionType or fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__:
        return False
    if any(map(_writes, _codes(fn.__code__))):
        return False
    names = {name for code in _codes(fn.__code__) for name in code.co_names}
    known = {name: fn.__globals__[name] for name in names if name in fn.__globals__}
    return all(type(value) in SCALARS for value in known.values()) and all(
        name in _CALLED or (name in known and not any(hasattr(kind, name) for kind in (dict, list, bytearray)))
        for name in names
    )


def builds_result(fn: Callable[..., Any]) -> bool:
    """Return whether every result of a function that only reads is certainly a new dict or tuple."""
    steps = list(dis.get_instructions(fn.__code__))
    returns = [(last, step) for last, step in pairwise(steps) if step.opname.startswith("RETURN_")]
    return bool(returns) and all(last.opname in _BUILDING and not step.is_jump_target for last, step in returns)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and the code objects of all functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _writes(code: CodeType) -> bool:
    return any(
        step.opname in _WRITING or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))
        for step in dis.get_instructions(code)
    )


_WRITING = frozenset(
    f"{change}_{place}" for change in ("STORE", "DELETE") for place in ("SUBSCR", "SLICE", "ATTR", "GLOBAL")
) | {"IMPORT_NAME"}
_BUILDING = frozenset(("BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_TUPLE"))
"""Instructions whose result is an object that no other variable holds."""
