"""Puts one function in another's place: where it is defined, and in every module that has taken it by name.

Callers that mean the process keep the originals: our own packages, and `logging`, whose stamps are for people.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from operators.capture.active import RUNNING

OWN = ("causal", "operators", "standby", "deploy")
STAMPING = ("logging", "logging.handlers")
"""Modules of the standard library that stamp lines with the time, and print nothing in a replay (`ctx.log`)."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement: `module.name` is `original` and becomes `function`."""

    module: ModuleType
    name: str
    original: Any
    function: Callable[..., Any]


def replace(replacements: list[Replacement]) -> None:
    """Put each function in its place, in its own module and wherever the original is a global of a module."""
    clock = ModuleType("time", time.__doc__)
    vars(clock).update(vars(time))
    for name in STAMPING:
        importlib.import_module(name)
    for each in replacements:
        setattr(each.module, each.name, each.function)
    functions = {id(each.original): each.function for each in replacements}  # `replacements` keeps the originals alive
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] not in OWN:
            _sweep(vars(module), functions)
            if name in STAMPING:
                vars(module)["time"] = clock


def _sweep(names: dict[str, Any], functions: Mapping[int, Callable[..., Any]]) -> None:
    replaced = [(name, functions[id(value)]) for name, value in names.items() if id(value) in functions]
    names.update(replaced)


def spare_imports() -> None:
    """Give the body of a module that is first imported inside an operator the process's own clock and chance.

    It runs once per process, so whatever it asked would be missing, or too much, in a replay.
    """
    bootstrap: Any = sys.modules["_frozen_importlib"]
    find_and_load = bootstrap._find_and_load

    def spared(name: str, import_: Callable[..., Any]) -> Any:
        with RUNNING.suspended():
            return find_and_load(name, import_)

    bootstrap._find_and_load = spared
