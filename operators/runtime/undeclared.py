"""A watch over data that user code keeps outside checkpoints: attributes, globals, closures, default arguments.

A `Witness` records a digest of each of these and can later name those that have changed. A digest is a hint, not a
proof: it is bounded, it does not cover data that only C code can access, and it also changes with a cache. The names
therefore only explain a difference that was detected in another way; on their own, they are never errors.
"""

from __future__ import annotations

import types
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

from causal.errors import CURE, CURE_OF_SOURCE, NONDETERMINISTIC, ReplayDivergence
from causal.ids import OUTSIDE
from causal.ports import Chain
from causal.topology import Topology
from operators.code_archive.importing import is_source_of_user
from operators.graph import Node
from operators.records.ownership import SCALARS
from operators.stage.operator import Operator
from operators.state.declared import State

VALUES_MAX = 10_000
DEPTH_MAX = 24
NAMED_MAX = 3
"""The maximum number of places that are named; any others are counted."""
BYTES_MAX = 1 << 20
"""The maximum number of bytes of a buffer that are examined."""

_WRAPPERS = (staticmethod, classmethod, type(lru_cache(len)))
"""The types that keep the function they wrap in `__wrapped__` and have no other data that can be examined."""
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type, property)

Place = tuple[str, str]
"""A place that can change: (description of the change, remedy)."""


class Witness:
    """The digests of the data that one task's user code can keep, as of the creation of the witness.

    Args:
        nodes: the operators of the task.
        chain: the chain that performs the operators; its operator instances belong to the task.
        values_max: the number of values examined in each place; of any further values, only the number is compared.
    """

    def __init__(self, nodes: Iterable[Node], chain: Chain, values_max: int = VALUES_MAX) -> None:
        self._values_max = values_max
        self._operators = _operators_of(chain)
        self._functions, self._classes = _with_callees(*_code_of(nodes, self._operators))
        self._before = self._digests()

    def changed(self) -> list[Place]:
        """Return the places that have changed since the witness was created, in a fixed order, attributes first."""
        now = self._digests()
        return [place for place, digest in now.items() if self._before.get(place) != digest]

    def attributes(self) -> dict[str, dict[str, Any]]:
        """Return the changed attributes of each operator, by operator name."""
        changed = {what for what, _ in self.changed()}
        return {
            name: {
                attribute: value
                for attribute, value in _attributes(operator)
                if _attribute(attribute, operator)[0] in changed
            }
            for name, operator in self._operators.items()
        }

    def _digests(self) -> dict[Place, int]:
        values_max = self._values_max

        def digest_of(value: Any) -> int:
            try:
                return _Walk(values_max).digest(value)
            except Exception as problem:  # this runs user code, such as a subclass of dict, a `__repr__` or a property
                return hash(type(problem).__name__)

        digests: dict[Place, int] = {}
        for operator in self._operators.values():
            for name, value in _attributes(operator):
                digests[_attribute(name, operator)] = digest_of(value)
        for kind in self._classes:
            for name, value in list(vars(kind).items()):
                if not name.startswith("__") and not isinstance(value, (*_CODE, State, classmethod, staticmethod)):
                    what = f"attribute `{name}` of class {kind.__name__} changed while operators ran"
                    digests[what, "declare state in the class instead"] = digest_of(value)
        functions = _distinct([*self._functions, *_methods_of(self._classes)])
        for function in functions:
            for name, value in _closed_over(function):
                what = f"variable `{name}` that {function.__qualname__} closes over changed while operators ran"
                digests[what, "keep it in ctx.state"] = digest_of(value)
            for name, value in list(vars(function).items()):
                what = f"attribute `{name}` of the function {function.__qualname__} changed while operators ran"
                digests[what, "keep it in ctx.state"] = digest_of(value)
        for module in _modules_of(functions):
            for name, value in list(module.items()):
                if not name.startswith("__") and not isinstance(value, _CODE):
                    what = f"global `{name}` of {_file_of(module)} changed while operators ran"
                    digests[what, "keep it in ctx.state"] = digest_of(value)
        return digests


def explained(
    problem: ReplayDivergence, places: list[Place], topology: Topology, commuting: Collection[str] = ()
) -> str:
    """Return the error message with the changes that were found or, if there are none, with general advice.

    Args:
        commuting: the tasks whose operators declare that their records commute.
    """
    if places:
        return problem.because(NONDETERMINISTIC + words(places))
    if problem.where in commuting:
        cure = "set commutes = False, or run it in operators.testing, which names the records that do not commute"
        return problem.because(f"is nondeterministic, or its records do not commute: {cure}")
    reading = {topology.tasks[channel.target].name for channel in topology.channels if channel.source == OUTSIDE}
    return str(problem).replace(CURE, CURE + CURE_OF_SOURCE) if problem.where in reading else str(problem)


def words(places: list[Place]) -> str:
    """Return one line with the changed places and their remedies; empty if nothing has changed."""
    if not places:
        return ""
    named = "; ".join(f"{what}; {remedy}" for what, remedy in places[:NAMED_MAX])
    more = len(places) - NAMED_MAX
    return f"{named}; and {more} more" if more > 0 else named


def _attribute(name: str, operator: Operator) -> Place:
    return f"attribute `{name}` of {type(operator).__name__} changed in process()", "declare it as state"


def _attributes(operator: Operator) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(operator).items()):
        if not isinstance(value, State):
            yield name, value


def _operators_of(chain: Chain) -> dict[str, Operator]:
    """Return the instances of user operators in a chain, by operator name."""
    operators: dict[str, Operator] = {}
    for stage in getattr(chain, "stages", ()):
        operator = getattr(stage, "_operator", None)
        if isinstance(operator, Operator):
            operators[stage.name] = operator
    return operators


# Code: functions that were passed to the builder, and the functions that they consist of.


def _code_of(nodes: Iterable[Node], operators: Mapping[str, Operator]) -> tuple[list[types.FunctionType], list[type]]:
    """Return the user's functions and classes that a task's operators may run."""
    functions: dict[int, types.FunctionType] = {}
    classes: dict[type, None] = {}

    def take(value: Any) -> None:
        if isinstance(value, partial):
            take(value.func)
        elif isinstance(value, types.MethodType):
            take(value.__func__)
            take(type(value.__self__))
        elif isinstance(value, types.FunctionType):
            if id(value) not in functions and _is_of_user(value):
                functions[id(value)] = value
                for _, inner in _closed_over(value):
                    if callable(inner):
                        take(inner)
        elif isinstance(value, type):
            for kind in value.__mro__:
                if kind not in classes and any(map(_is_of_user, _methods_of([kind]))):
                    classes[kind] = None
        elif callable(value) and not isinstance(value, attrgetter):
            take(type(value))

    for operator in operators.values():
        take(type(operator))
    for node in nodes:
        if not isinstance(node.subject, Operator):
            take(node.subject)
        for option in node.options.values():
            take(option)
        for edge in node.edges:
            take(edge.key_of)
            take(edge.time_of)
    return list(functions.values()), list(classes)


def _with_callees(
    functions: list[types.FunctionType], classes: list[type]
) -> tuple[list[types.FunctionType], list[type]]:
    """Return these functions and classes, and those of the user's modules that they may call by a global name."""
    callees, kinds = _distinct(functions), dict.fromkeys(classes)
    for module in _modules_of([*functions, *_methods_of(classes)]):
        for value in list(module.values()):
            member = _function_of(value)
            if isinstance(member, types.FunctionType) and _is_of_user(member):
                callees.append(member)
            elif isinstance(member, type) and any(map(_is_of_user, _methods_of([member]))):
                kinds[member] = None
    return _distinct(callees), list(kinds)


def _is_of_user(function: types.FunctionType) -> bool:
    return is_source_of_user(function.__code__.co_filename)


def _methods_of(classes: Iterable[type]) -> list[types.FunctionType]:
    """Return the functions in the bodies of these classes, including static methods, class methods and properties."""
    members = (_function_of(value) for kind in classes for value in list(vars(kind).values()))
    return [member for member in members if isinstance(member, types.FunctionType)]


def _function_of(member: Any) -> Any:
    """Return the function that a member of a class or module wraps, or else the member itself."""
    if isinstance(member, property):
        return member.fget
    wrapped = getattr(member, "__wrapped__", None) if isinstance(member, _WRAPPERS) else None
    return member if wrapped is None else wrapped


def _distinct(functions: Iterable[types.FunctionType]) -> list[types.FunctionType]:
    return list({id(function): function for function in functions}.values())


def _closed_over(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield closure variables and default arguments, which exist as long as the function does."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not bound yet
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _modules_of(functions: Iterable[types.FunctionType]) -> list[dict[str, Any]]:
    """Return the globals of the user's modules that these functions can access, including imported user modules."""
    modules: dict[int, dict[str, Any]] = {}
    waiting = [function.__globals__ for function in functions if _is_of_user(function)]
    while waiting:
        module = waiting.pop(0)
        if id(module) in modules:
            continue
        modules[id(module)] = module
        for value in list(module.values()):
            if isinstance(value, types.ModuleType) and is_source_of_user(str(getattr(value, "__file__", "") or "")):
                waiting.append(vars(value))
            elif isinstance(value, types.FunctionType) and _is_of_user(value):
                waiting.append(value.__globals__)
    return list(modules.values())


def _file_of(module: Mapping[str, Any]) -> str:
    return Path(str(module.get("__file__") or module.get("__name__"))).name


# Values.


class _Walk:
    """Computes the digest of one value, of which only a limited number of parts is read."""

    def __init__(self, values_max: int) -> None:
        self._left = values_max
        self._within: set[int] = set()

    def digest(self, value: Any, depth: int = 0) -> int:
        self._left = max(0, self._left - 1)
        kind = type(value)
        if kind in SCALARS or kind in (complex, range):
            # Two NaN objects usually have different hashes, and a signaling NaN cannot be hashed.
            return hash((kind.__name__, repr(value) if kind in (float, complex, Decimal) else value))
        if not self._left or depth > DEPTH_MAX or id(value) in self._within:
            return hash(kind.__name__)
        self._within.add(id(value))
        try:
            return hash((kind.__name__, self._content(value, depth + 1)))
        finally:
            self._within.discard(id(value))

    def _content(self, value: Any, depth: int) -> Any:
        digest = self.digest
        if isinstance(value, dict):
            items = list(islice(value.items(), self._left))
            return len(value), *((digest(key, depth), digest(inner, depth)) for key, inner in items)
        if isinstance(value, (list, tuple, deque)):
            return len(value), *(digest(item, depth) for item in list(islice(value, self._left)))
        if isinstance(value, (set, frozenset)):
            return len(value), *(sorted(digest(item, depth) for item in list(value)) if len(value) < self._left else ())
        if isinstance(value, (bytearray, memoryview, array)):
            return _bytes_of(value)
        if isinstance(value, Random):
            return _random_state(value)
        if isinstance(value, (*_CODE, State, Operator)):
            return id(value)
        return self._opaque(value, depth)

    def _opaque(self, value: Any, depth: int) -> Any:
        """Return the content of any other object: a user object's attributes, or else its `repr` without addresses."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict) and any(map(_is_of_user, _methods_of(type(value).__mro__))):
            return tuple((name, self.digest(inner, depth)) for name, inner in list(attributes.items()))
        if type(value).__module__ not in _SAYS_ITSELF:
            return 0
        text = repr(value)
        return 0 if " at 0x" in text else hash(text[:BYTES_MAX])


def _bytes_of(value: bytearray | memoryview | array[Any]) -> bytes:
    """Return the first bytes of a buffer; return none if it has been released or is not contiguous."""
    try:
        return bytes(memoryview(value).cast("B")[:BYTES_MAX])
    except (TypeError, ValueError):
        return b""


_SAYS_ITSELF = frozenset(
    ("builtins", "itertools", "collections", "decimal", "datetime", "fractions", "uuid", "pathlib")
)
"""The modules whose objects have a short `repr` that shows their value; that of other objects may show anything."""

_random_state: Callable[[Random], Any] = Random.getstate
"""The `getstate` from before generators were patched, because computing a digest must not draw random numbers."""
