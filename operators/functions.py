"""Checks that a call of a user's function runs it: it is not a coroutine function, and accepts the arguments."""

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

PLAIN = "give a plain function"


def check_plain(what: str, fn: Callable[..., Any], generates: bool = False, fix: str = PLAIN) -> None:
    """Refuse a coroutine function, and a generator function where one value is wanted.

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


def check_methods(what: str, instance: object, methods: Mapping[str, Sequence[str]], generates: bool = False) -> None:
    """Refuse an object of the user's with a method that `check_plain` refuses, or that takes other arguments.

    Args:
        what: the beginning of the message, for example "p.py:3: process 'p'".
        methods: the parameters of the methods that are called; one that is missing is not looked at.
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
        PipelineError: the message names what the function is, or where it is and what it is called with.
    """
    check_plain(what, fn, generates, fix)
    check_parameters(what, fn, parameters)


def check_parameters(what: str, fn: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Refuse a function with other parameters.

    Args:
        what: the beginning of the message, for example "p.py:3: window 'w' is given".

    Raises:
        PipelineError: the message names the parameters, and where the function is.
    """
    other = _other_parameters(fn, parameters)
    if other:
        place = place_of(fn)
        at = f" at {place}" if place else ""
        wanted = f"a function of ({', '.join(parameters)})" if parameters else "a function without parameters"
        raise PipelineError(f"{what} a function of {other}{at}; give {wanted}")


def place_of(fn: object) -> str:
    """Return file:line of the definition of the function that a call of `fn` runs; "" where it is not in Python."""
    code = getattr(_code_of(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _other_parameters(fn: Callable[..., Any], parameters: Sequence[str]) -> str:
    """Return the parameters of `fn` if it cannot be called with as many arguments as `parameters`, otherwise "".

    Some built-in functions do not declare their parameters.
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
    """Return the function or method that a call of `fn` runs."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn if isfunction(fn) or ismethod(fn) or isclass(fn) else type(fn).__call__
