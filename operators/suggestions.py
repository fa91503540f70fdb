"""Suggestions for a misspelled keyword argument, attribute or import of this package.

Python adds its own suggestions only when it prints a traceback, which users of this runtime do not see. The functions
here depend on the exception alone, because dead letters must be reproducible.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

_PACKAGES = ("causal", "operators", "standby", "deploy")
_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_KEYWORD = re.compile(r"([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'$")


def suggestion(problem: BaseException) -> str:
    """Return `; did you mean 'name'?`, or the valid names if none is similar; "" for any other exception."""
    if isinstance(problem, AttributeError) and problem.obj is not None and isinstance(problem.name, str):
        kind = problem.obj if isinstance(problem.obj, type) else type(problem.obj)
        if kind.__module__.partition(".")[0] not in _PACKAGES:
            return ""
        return _nearest(problem.name, _attributes(kind))
    if isinstance(problem, ImportError) and (imported := _IMPORT.match(str(problem))):
        module = sys.modules.get(imported[2])
        if module is None or imported[2].partition(".")[0] not in _PACKAGES:
            return ""
        return _nearest(imported[1], getattr(module, "__all__", ()))
    if isinstance(problem, TypeError) and (called := _KEYWORD.match(str(problem))):
        known = sorted({name for fn in _functions(called[1]) for name in _keywords(fn)})
        return _nearest(called[2], known) or (f"; it has {', '.join(known)}" if known else "")
    return ""


def _attributes(kind: type) -> Iterator[str]:
    """Yield the public attributes that a class has or declares, ignoring any set only on an instance."""
    for name in {*dir(kind), *(name for base in kind.__mro__ for name in base.__dict__.get("__annotations__", ()))}:
        if not name.startswith("_"):
            yield name


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # imported here because only messages need it

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _functions(qualified: str) -> Iterator[Any]:
    """Yield the functions of this package that have the given qualified name."""
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").partition(".")[0] in _PACKAGES:
            value: Any = vars(module).get(qualified.partition(".")[0])
            for part in qualified.split(".")[1:]:
                value = getattr(value, part, None)
            if callable(value) and getattr(value, "__module__", "").partition(".")[0] in _PACKAGES:
                yield value


def _keywords(fn: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name != "self":
            yield parameter.name
