"""Keeps runs of the garbage collector outside of operators: their moment depends on the process, not on the records.

Finalisers (`__del__`, callbacks of weak references, functions in `gc.callbacks`) that a collection runs get the
process's own clock and chance.  Those that run because the last reference went away are part of the code that let it
go, and run at the same place in every execution of it.
"""

from __future__ import annotations

import gc
from threading import get_ident
from typing import Any

from operators.capture.active import NO_OPERATOR, RUNNING, Active

_suspended: list[tuple[Active, str]] = []
"""The chain and its operator in which a collection was triggered; at most one."""


def spare_collections() -> None:
    """Let no operator be active while the collector runs, from now on."""
    gc.callbacks.insert(0, _begin)
    gc.callbacks.append(_end)


def _begin(phase: str, info: dict[str, Any]) -> None:
    if phase != "start":
        return
    active = RUNNING.active
    if active is not None and active.operator != NO_OPERATOR and active.thread == get_ident():
        _suspended.append((active, active.operator))
        active.operator = NO_OPERATOR
    _keep_places()


def _end(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and _suspended and _suspended[-1][0].thread == get_ident():
        active, operator = _suspended.pop()
        active.operator = operator


def _keep_places() -> None:
    """Let other callbacks run between ours, at the start and at the stop, from the next collection on."""
    callbacks: list[Any] = gc.callbacks
    if callbacks[0] is not _begin or callbacks[-1] is not _end:
        callbacks[:] = [_begin, *(each for each in callbacks if each not in (_begin, _end)), _end]
