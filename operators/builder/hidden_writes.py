"""A search for writes outside an operator's state: to globals, to its own attributes, or to closure variables.

Checkpoints do not contain these values, so they may differ after a failure. The source code of the operator's functions
is searched before the job starts. Other kinds of hidden writes are detected only when an epoch is performed twice.
"""

from __future__ import annotations

import ast
import linecache
from collections import deque
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from types import FunctionType, ModuleType
from typing import Any

from operators.state.declared import State
from operators.tracebacks import of_a_user

PREPARING = frozenset(("__init__", "__post_init__", "open", "close", "__setattr__"))
"""Operator methods that may set attributes, because they set the same attributes in every process."""
_CHANGING = frozenset(
    "add append appendleft clear discard extend extendleft insert pop popitem popleft remove setdefault sort "
    "subtract update".split()
)
_CONTAINERS = (MutableMapping, MutableSequence, MutableSet, deque, bytearray)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_trees: dict[str, ast.Module | None] = {}


def hidden_writes(fn: FunctionType, operator: object = None) -> Iterator[tuple[str, str]]:
    """Yield (target, `file:line`) for each write by a function to anything other than state.

    Args:
        operator: the object whose method `fn` is; None for a plain function.
    """
    file = fn.__code__.co_filename
    if not of_a_user(file):
        return
    for node in _nodes_of(file, fn):
        own = node.args.posonlyargs + node.args.args
        me = own[0].arg if operator is not None and own else ""
        for name, line in _Writes(node, fn, me, operator).all():
            yield name, f"{file}:{line}"


def called_by(fn: FunctionType) -> set[str]:
    """Return the names of the functions that `fn` calls directly, except those that it passes to `ctx.call`."""
    nodes = list(_nodes_of(fn.__code__.co_filename, fn)) if of_a_user(fn.__code__.co_filename) else []
    inside = [each for node in nodes for each in ast.walk(node)]
    return {each.func.id for each in inside if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}


def _nodes_of(file: str, fn: FunctionType) -> Iterator[_Function]:
    if file not in _trees:
        try:
            _trees[file] = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError, RecursionError):
            _trees[file] = None  # the source cannot be parsed, so the functions in this file are not checked
    tree = _trees[file]
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, _Function):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            if first == fn.__code__.co_firstlineno and getattr(node, "name", "<lambda>") == fn.__name__:
                yield node


class _Writes:
    """The writes in the body of one function."""

    def __init__(self, node: _Function, fn: FunctionType, me: str, operator: object) -> None:
        self._node, self._fn, self._me, self._operator = node, fn, me, operator
        inside = [each for each in ast.walk(node) if each is not node]
        self._inside = inside
        self._globals = {name for each in inside if isinstance(each, ast.Global) for name in each.names}
        self._outer = {name for each in inside if isinstance(each, ast.Nonlocal) for name in each.names}
        self._outer &= set(fn.__code__.co_freevars)
        local = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        local |= {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        local |= {each.name for each in inside if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
        self._local = local - self._globals - self._outer

    def all(self) -> Iterator[tuple[str, int]]:
        """Yield (name, line) for the first write to each name."""
        seen = set[str]()
        for each in sorted(self._inside, key=lambda node: getattr(node, "lineno", 0)):
            for target in self._targets(each):
                name = self._name(target, bare=not isinstance(each, ast.Call))
                if name and name not in seen:
                    seen.add(name)
                    yield name, each.lineno  # type: ignore[attr-defined]

    def _targets(self, node: ast.AST) -> Iterator[ast.expr]:
        if isinstance(node, ast.Assign | ast.Delete):
            for target in node.targets:
                yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value):
            yield node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            yield node.func.value

    def _name(self, target: ast.expr, bare: bool) -> str:
        """Return the name of a write target that outlives the call, or "" for any other target."""
        path, inner = [], target
        while isinstance(inner, ast.Attribute | ast.Subscript):
            path.append(inner)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            return ""
        if inner.id == self._me and path:
            return self._attribute(path[-1], sure=bare)
        if not path and bare:
            if inner.id in self._globals:
                return f"the global {inner.id!r}"
            return f"the variable {inner.id!r} of the function around it" if inner.id in self._outer else ""
        if inner.id in self._local:
            return ""
        for kind, value in self._values(inner.id):
            if isinstance(value, ModuleType) if path and isinstance(path[-1], ast.Attribute) else _changes(value):
                return f"the {kind} {inner.id!r}"
        return ""

    def _attribute(self, step: ast.expr, sure: bool) -> str:
        """Return the name of an operator attribute, or "" if the attribute is declared as state or is a property."""
        if not isinstance(step, ast.Attribute):
            return ""
        declared = getattr(type(self._operator), step.attr, None)
        if isinstance(declared, State | property) or hasattr(type(declared), "__set__"):
            return ""
        if sure or _changes(getattr(self._operator, "__dict__", {}).get(step.attr, declared)):
            return f"the attribute self.{step.attr}"
        return ""

    def _values(self, name: str) -> Iterator[tuple[str, Any]]:
        fn = self._fn
        for free, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if free == name:
                try:
                    yield "closure variable", cell.cell_contents
                except ValueError:  # the variable has not been assigned yet
                    return
                return
        if name in fn.__globals__:
            yield "global", fn.__globals__[name]


def _changes(value: object) -> bool:
    return isinstance(value, _CONTAINERS)
