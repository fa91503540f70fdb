"""Failures of user code in a test, shown without the runtime's frames between the test and the relevant line."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from operators.tracebacks import OURS, own_location

P = ParamSpec("P")
R = TypeVar("R")


def without_our_frames(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that runs user code, so that its exceptions show only the user's frames.

    An error of the runtime itself, in which no user code is involved, keeps all of its frames.
    """

    @wraps(fn)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True  # pytest reads this variable
        try:
            return fn(*args, **kwargs)
        except Exception as problem:
            if not _shortened(problem):
                raise
            raise problem.with_traceback(None) from problem.__cause__

    return called


def _shortened(problem: BaseException) -> bool:
    """Remove the runtime's frames from an exception's causes if user code raised one; return whether it did."""
    causes, each = list[BaseException](), problem.__cause__ or problem.__context__
    while each is not None and each not in causes:
        causes.append(each)
        each = each.__cause__ or each.__context__
    if not any(map(own_location, causes)):
        return False
    for cause in causes:
        cause.with_traceback(_of_the_user(cause.__traceback__))
    return True


def _of_the_user(step: TracebackType | None) -> TracebackType | None:
    steps = list[TracebackType]()
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(OURS):
            steps.append(step)
        step = step.tb_next
    kept: TracebackType | None = None
    for step in reversed(steps):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return kept
