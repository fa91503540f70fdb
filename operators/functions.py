"""The check that a call of a user's function runs it: that of a coroutine function only returns an object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, isroutine
from typing import Any

from causal.errors import PipelineError

PLAIN = "give a plain function"


def check_plain(what: str, fn: Callable[..., Any], generates: bool = False, fix: str = PLAIN) -> None:
    """Refuses a coroutine function, and a generator function where one value is wanted.

    Args:
        what: the beginning of the message, for example "p.py:3: map 'm' is given".
        generates: whether `fn` returns an iterable of records, so that it may be a generator function.

    Raises:
        PipelineError: the message names the kind of the function.
    """
    code = _code_of(fn)
    if iscoroutinefunction(code):
        raise PipelineError(f"{what} a coroutine function; {fix}")
    if isasyncgenfunction(code):
        raise PipelineError(f"{what} an async generator function; {fix}")
    if isgeneratorfunction(code) and not generates:
        raise PipelineError(f"{what} a generator function; {PLAIN}, which returns its result")


def check_methods(what: str, instance: object, names: Sequence[str], generates: bool = False) -> None:
    """Refuses an object of the user's whose methods are coroutine functions, as `check_plain` does.

    Args:
        what: the beginning of the message, for example "p.py:3: process 'p'".
        names: the methods that are called; one that is missing is not looked at.
    """
    for name in names:
        method = getattr(instance, name, None)
        if callable(method):
            check_plain(f"{what}: {type(instance).__name__}.{name} is", method, generates)


def _code_of(fn: Any) -> Any:
    """Returns the function or method that a call of `fn` runs."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn if isroutine(fn) or isinstance(fn, type) else type(fn).__call__
