"""Checks that calling a user's function runs it: it is not a coroutine function, and it accepts the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    isclass,
    iscoroutinefunction,
    isfunction,
    isgeneratorfunction,
    ismethod,
    signature,
)
from typing import Any

from causal.errors import PipelineError

PLAIN = "pass a plain function"


def check_plain(what: str, fn: Callable[..., Any], generates: bool = False, fix: str = PLAIN) -> None:
    """Refuse a coroutine function, and refuse a generator function unless `generates` is set.

    Args:
        what: the beginning of the message, for example "p.py:3: map 'm' was given".
        generates: whether `fn` returns an iterable of records, so that it may be a generator function.

    Raises:
        PipelineError: `fn` is refused; the message names the kind of function.
    """
    code = _code_of(fn)
    if iscoroutinefunction(code):
        raise PipelineError(f"{what} a coroutine function; {fix}")
    if isasyncgenfunction(code):
        raise PipelineError(f"{what} an async generator function; {fix}")
    if isgeneratorfunction(code) and not generates:
        raise PipelineError(f"{what} a generator function; {PLAIN}, which returns its result")


def check_methods(what: str, instance: object, methods: Mapping[str, Sequence[str]], generates: bool = False) -> None:
    """Refuse a user's object if `check_plain` refuses one of its methods or a method has the wrong parameters.

    Args:
        what: the beginning of the message, for example "p.py:3: process 'p'".
        methods: the names and parameters of the methods that the runtime calls; missing methods are not checked.
    """
    for name, parameters in methods.items():
        method = getattr(instance, name, None)
        if callable(method):
            called = f"{type(instance).__name__}.{name}"
            check_plain(f"{what}: {called} is", method, generates)
            other = _other_parameters(method, parameters)
            if other:
                wanted = ", ".join(parameters)
                raise PipelineError(f"{what}: {called} takes {other}, not ({wanted}); define {name}(self, {wanted})")


def check_function(
    what: str, fn: Callable[..., Any], parameters: Sequence[str], generates: bool = False, fix: str = PLAIN
) -> None:
    """Refuse a function that `check_plain` or `check_parameters` refuses.

    Raises:
        PipelineError: the message describes the function, or states its location and the expected parameters.
    """
    check_plain(what, fn, generates, fix)
    check_parameters(what, fn, parameters)


def check_parameters(what: str, fn: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Refuse a function that cannot be called with `parameters`.

    Args:
        what: the beginning of the message, for example "p.py:3: window 'w' was given".

    Raises:
        PipelineError: the message names the parameters and the location of the function.
    """
    other = _other_parameters(fn, parameters)
    if other:
        place = place_of(fn)
        at = f" at {place}" if place else ""
        wanted = f"a function of ({', '.join(parameters)})" if parameters else "a function without parameters"
        raise PipelineError(f"{what} a function of {other}{at}; pass {wanted}")


def place_of(fn: object) -> str:
    """Return file:line of the definition of the function that `fn(...)` runs, or "" if it is not Python code."""
    code = getattr(_code_of(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _other_parameters(fn: Callable[..., Any], parameters: Sequence[str]) -> str:
    """Return the parameters of `fn` if it cannot be called with `len(parameters)` arguments, or "" if it can.

    Built-in functions that do not declare their parameters are accepted.
    """
    try:
        of_fn = signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return ""
    try:
        of_fn.bind(*parameters)
    except TypeError:
        bare = [each.replace(annotation=Parameter.empty) for each in of_fn.parameters.values()]
        return str(of_fn.replace(parameters=bare, return_annotation=Signature.empty))
    return ""


def _code_of(fn: Any) -> Any:
    """Return the function or method that calling `fn` runs."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn if isfunction(fn) or ismethod(fn) or isclass(fn) else type(fn).__call__
