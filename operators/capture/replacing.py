"""Replacement of functions in their defining modules and in every module that has imported them by name.

Some callers need the process's own functions and keep the originals: the packages of this project, and `logging`, whose
timestamps are meant for people.

Reading the globals of all modules in a forked process would copy their memory pages. Therefore, the process from which
workers are forked searches once, and each worker replaces only the globals in which that search found the originals.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

from operators.capture.active import RUNNING

OWN = ("causal", "operators", "standby", "deploy")
STAMPING = ("logging", "logging.handlers")
"""The standard library modules that timestamp log lines; a replay prints no lines from `ctx.log`."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement of `original`, which is the value of `module.name`, by `function`."""

    module: ModuleType
    name: str
    original: Any
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of a search: the modules then loaded, and their references to functions that may be replaced."""

    names: tuple[str, ...]
    originals: frozenset[int]
    """The ids of the functions that may be replaced; their defining modules keep these functions alive."""
    places: tuple[tuple[str, str, int], ...]
    """Tuples (module name, name of a global in it, id of the original function)."""


_seen = _Seen((), frozenset(), ())


def look(definers: Sequence[ModuleType]) -> None:
    """Record which module globals refer to functions of `definers`, for processes that are forked from this one."""
    global _seen
    originals = frozenset(id(value) for module in definers for value in vars(module).values() if callable(value))
    modules = dict(sys.modules)
    places = [
        (name, attribute, id(value))
        for name, module in modules.items()
        if _is_swept(name, module)
        for attribute, value in vars(module).items()
        if id(value) in originals
    ]
    _seen = _Seen(tuple(modules), originals, tuple(places))


def _unseen(originals: Collection[int]) -> list[str]:
    """Return the modules loaded since `look`, or all modules if `look` did not search for these originals."""
    behind = len(sys.modules) - len(_seen.names)
    if behind < 0 or not _seen.originals.issuperset(originals):
        return list(sys.modules)
    names = list(islice(reversed(sys.modules), behind + 1))
    return names[:-1] if names[-1] == _seen.names[-1] else list(sys.modules)


def replace(replacements: list[Replacement]) -> None:
    """Install each replacement in the original's module and in every other module that has the original as a global."""
    clock = ModuleType("time", time.__doc__)
    vars(clock).update(vars(time))
    for name in STAMPING:
        importlib.import_module(name)
    for each in replacements:
        setattr(each.module, each.name, each.function)
    functions = {id(each.original): each.function for each in replacements}  # `replacements` keeps the originals alive
    for name, attribute, original in _seen.places:
        if original in functions and name in sys.modules:
            names = vars(sys.modules[name])
            if id(names.get(attribute)) == original:
                names[attribute] = functions[original]
    for name in _unseen(functions):
        module = sys.modules[name]
        if _is_swept(name, module):
            _sweep(vars(module), functions)
    for name in STAMPING:
        vars(sys.modules[name])["time"] = clock


def spare_modules(directory: str) -> None:
    """Restore the process's own clock, also inside operators, in the loaded modules of a directory, as a debugger's."""
    clock = vars(sys.modules[STAMPING[0]])["time"]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(directory) and vars(module).get("time") is time:
            vars(module)["time"] = clock


def _is_swept(name: str, module: object) -> bool:
    return isinstance(module, ModuleType) and name.partition(".")[0] not in OWN


def _sweep(names: dict[str, Any], functions: Mapping[int, Callable[..., Any]]) -> None:
    replaced = [(name, functions[id(value)]) for name, value in names.items() if id(value) in functions]
    names.update(replaced)


def spare_imports() -> None:
    """Run modules that are first imported inside an operator with the process's own clock and random generators.

    A module body runs only once per process. If its calls were logged, a replay could find too few or too many logged
    results.
    """
    bootstrap: Any = sys.modules["_frozen_importlib"]
    find_and_load = bootstrap._find_and_load

    def spared(name: str, import_: Callable[..., Any]) -> Any:
        with RUNNING.suspended():
            return find_and_load(name, import_)

    bootstrap._find_and_load = spared
