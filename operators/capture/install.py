"""One-time patching of this process, before the pipeline file is loaded, as `hidden_nondeterminism` specifies.

Outside operators, and on other threads, the clock and random generators behave as usual.

Garbage collections also count as outside operators, because their timing depends on the process rather than on the
records. Finalisers (`__del__`, weak reference callbacks, functions in `gc.callbacks`) that a collection runs therefore
use the process's own clock and random generators. By contrast, a finaliser that runs because the last reference was
dropped belongs to the code that dropped the reference, and runs at the same point in every execution of that code.
"""

from __future__ import annotations

import datetime
import gc
import os
import random
import secrets
import time
import uuid
from threading import get_ident
from typing import Any

from causal.errors import PipelineError
from operators.capture import replacing
from operators.capture.active import NO_OPERATOR, RUNNING, Active
from operators.capture.chance import of_entropy, of_random
from operators.capture.clock import of_datetime, of_time

DEFINERS = (time, random, os, secrets, uuid, datetime)
"""The modules whose functions are replaced."""

_installed: list[str] = []
"""The mode in which this process was first patched; empty if it has not been patched."""

_suspended: list[tuple[Active, str]] = []
"""The chain and operator whose code triggered the current collection; the list has at most one entry."""


def spare_collections() -> None:
    """Make every operator inactive whenever the garbage collector runs, from this call on."""
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
    """Ensure that `_begin` runs first when a later collection starts and `_end` runs last when it stops."""
    callbacks: list[Any] = gc.callbacks
    if callbacks[0] is not _begin or callbacks[-1] is not _end:
        callbacks[:] = [_begin, *(each for each in callbacks if each not in (_begin, _end)), _end]


def look() -> None:
    """Search for the functions to replace, so that `install` is fast in processes that are forked from this one."""
    replacing.look(DEFINERS)


def install(how: str) -> None:
    """Route operators' calls to the clock and random generators to the causal services, or refuse such calls.

    Args:
        how: "capture", "refuse", or "allow"; the last leaves the process unchanged.

    Raises:
        PipelineError: `how` is "allow", but the process has already been patched, which cannot be undone.
    """
    if how == "allow":
        if _installed:
            raise PipelineError(
                'hidden_nondeterminism="allow" is too late, because an earlier run in this process has '
                "installed the capture; "
                "pass it to all runs, or run this test in a separate process"
            )
        return
    RUNNING.refuses = how == "refuse"
    if _installed:
        return
    _installed.append(how)
    replacing.replace([*of_time(), *of_random(), *of_entropy(), *of_datetime()])
    replacing.spare_imports()
    spare_collections()
