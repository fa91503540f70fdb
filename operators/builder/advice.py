"""Warnings about pipelines that run but probably do not do what their authors intended.

One example is an operator whose state is lost after a failure; another is state that is not kept per key. Each warning
is one line that names the operator, its file and line, the consequence, and the fix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

from operators.builder.hidden_writes import PREPARING, called_by, hidden_writes
from operators.graph import Node, watermarked
from operators.kinds.windows import window_kinds
from operators.records.seconds import seconds_of
from operators.stage.operator import Operator
from operators.state.declared import State

FUNCTIONS_MAX = 200
"""The maximum number of functions that are inspected per operator."""
_STATE_NAMES = frozenset(("state", "states", "set_timer"))
_STANDARD = (sys.stdin, sys.stdout, sys.stderr)


def advice(nodes: Sequence[Node]) -> list[str]:
    """Return the warnings about these operators, in pipeline order."""
    return [
        line
        for node in nodes
        for line in (*_undivided(node), *_by_the_wall_clock(node), *_captured(node), *_written(node))
    ]


def _undivided(node: Node) -> Iterator[str]:
    """Warn if an operator that runs in several tasks keeps state without a key.

    Each task has its own state, and a record may reach any of these tasks.
    """
    if node.keyed or node.parallelism == 1:
        return
    if node.kind in window_kinds.KINDS:
        what, own = "gathers windows", "windows"
    elif node.kind == "process" and _keeps_state(node.subject):
        what, own = "keeps state", "state"
    else:
        return
    yield (
        f"{node.where}: operator {node.name!r} {what} but follows no key_by, so each of its {node.parallelism} "
        f"tasks has its own {own} and sees only some of the records; put .key_by(fn) before it, or set parallelism=1"
    )


def _by_the_wall_clock(node: Node) -> Iterator[str]:
    """Warn if records have event time but a window, specified as a plain number of seconds, uses the wall clock.

    Streams of vectors support no other windows, so they are skipped.
    """
    if node.options.get("clock_stated", True) or node.reads_vectors:
        return
    if all(watermarked(edge.source) for edge in node.edges):
        size = f"{seconds_of(node.options['assigner'].size_ns):.15g}"
        yield (
            f"{node.where}: window {node.name!r} of {size} s uses the wall clock although its records have event time; "
            f'use Tumbling({size}) for event time, or Tumbling({size}, clock="processing") if you mean the wall clock'
        )


def _keeps_state(operator: object) -> bool:
    kind = type(operator)
    if any(isinstance(value, State) for base in kind.__mro__ for value in vars(base).values()):
        return True
    codes = [code for fn in _methods(operator) for code in _codes(fn.__code__)]
    return any(_STATE_NAMES & set(code.co_names) for code in codes)


def _methods(operator: object) -> Iterator[FunctionType]:
    for base in type(operator).__mro__:
        if base is Operator or base is object:
            continue
        yield from (value for value in vars(base).values() if isinstance(value, FunctionType))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of all functions defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _captured(node: Node) -> Iterator[str]:
    """Warn about files and iterators that an operator uses, because each process has its own copy and position."""
    if node.kind in ("source", "sink"):
        return
    seen: set[int] = set()
    for name, value in _used_by(node):
        if id(value) in seen:
            continue
        seen.add(id(value))
        if hasattr(value, "fileno") and hasattr(value, "read"):
            what = f"the open file {getattr(value, 'name', name)!r}"
            fix = "open it in open(ctx) if its content never changes, or read it with ctx.call(fn)"
        else:
            what = f"the {type(value).__name__} {name!r}"
            fix = "keep the position as state, or use a list"
        yield (
            f"{node.where}: operator {node.name!r} uses {what}, whose position is not state: every process has "
            f"its own copy, and a recovery does not restore it; {fix}"
        )


def _written(node: Node) -> Iterator[str]:
    """Warn about writes outside the operator's state, which a recovery may lose or repeat.

    Sources, sinks and calls interact with the outside world and are not replayed, so they are skipped.
    """
    if node.kind in ("source", "sink", "call"):
        return
    seen: set[str] = set()
    for fn, operator in _functions_of(node):
        for name, where in hidden_writes(fn, operator):
            if name not in seen:
                seen.add(name)
                yield (
                    f"{where}: operator {node.name!r} writes {name}, which is not state: after a failure or a "
                    "resume, another process has its own value; keep it in ctx.state, or set it in open(ctx) "
                    "if it never changes"
                )


def _functions_of(node: Node) -> Iterator[tuple[FunctionType, object]]:
    """Yield (function, operator) for each function that processes records and each function that these functions call.

    For a method, the operator is the object to which the method belongs; for any other function, it is None.
    """
    subject = node.subject
    waiting: list[tuple[Any, object]] = [(each, None) for each in (subject, *node.options.values())]
    waiting += [(edge.key_of, None) for edge in node.edges] + [(edge.time_of, None) for edge in node.edges]
    if isinstance(subject, Operator):
        waiting += [(fn, subject) for fn in _methods(subject) if fn.__name__ not in PREPARING]
    seen: set[int] = set()
    while waiting and len(seen) < FUNCTIONS_MAX:
        value, operator = waiting.pop(0)
        if isinstance(value, MethodType):
            operator = value.__self__
        fn = _function_of(value)
        if fn is None or id(fn) in seen:
            continue
        seen.add(id(fn))
        yield fn, operator
        called = called_by(fn)
        waiting += [(value, None) for name, value in _names_of(fn) if name in called]


def _used_by(node: Node) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each iterator, including open files, that the operator's functions can access."""
    subject = node.subject
    waiting: list[Any] = [subject, *node.options.values()]
    waiting += [edge.key_of for edge in node.edges] + [edge.time_of for edge in node.edges]
    if isinstance(subject, Operator):
        waiting += _methods(subject)
        for name, value in vars(subject).items():
            if _has_position(value):
                yield name, value
    seen: dict[int, Any] = {}
    while waiting and len(seen) < FUNCTIONS_MAX:
        fn = _function_of(waiting.pop())
        if fn is None or id(fn) in seen:
            continue
        seen[id(fn)] = fn
        for name, value in _names_of(fn):
            if _has_position(value):
                yield name, value
            elif callable(value):
                waiting.append(value)


def _function_of(value: Any) -> FunctionType | None:
    if isinstance(value, MethodType):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None


def _names_of(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for all that a function can access: its closure, its defaults, and its module's globals."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable has not been assigned yet
            continue
    yield from (("a default", value) for value in (fn.__defaults__ or ()))
    for code in _codes(fn.__code__):
        yield from ((name, fn.__globals__[name]) for name in code.co_names if name in fn.__globals__)


def _has_position(value: Any) -> bool:
    """Return whether a value is an iterator, such as an open file, other than one of the standard streams."""
    kind = type(value)
    moves: Callable[..., Any] | None = getattr(kind, "__next__", None)
    return moves is not None and not any(value is each for each in _STANDARD)
