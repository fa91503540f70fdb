"""Exceptions in user code: their locations, and their tracebacks without the frames of this runtime.

All functions depend on the exception alone, because their results are part of dead letters, which a replay must
reproduce byte for byte (D10). The stack depth at which the runtime called the user's function and the addresses of
objects differ between runs, so neither appears in the results.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, TracebackType

from operators.suggestions import suggestion

SHOWN_MAX = 200
TRACEBACK_CHARACTERS_MAX = 16_384
FRAMES_MAX = 40
"""The maximum number of frames shown for one exception: half of them are the first, half the last."""

_HOME = Path(__file__).resolve().parent.parent
OURS = tuple(f"{_HOME / package}/" for package in ("causal", "operators", "standby", "deploy", "pyspark_causal"))
LIBRARIES = tuple(
    f"{directory}/"
    for directory in dict.fromkeys(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
)
_CAUSE_MESSAGE = "\nThe above exception was the direct cause of the following exception:\n\n"
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


class Recorded(Exception):
    """A failure that was recorded when it happened, either in this execution or in the one being replayed.

    Attributes:
        where: `file:line in function` of the user code that raised; "" if no user code was involved.
        trace: the traceback as `user_traceback` formats it, or "".
    """

    where = ""
    trace = ""


def without_addresses(text: str) -> str:
    """Return `text` without the addresses of objects, which differ between processes."""
    return _ADDRESS.sub("at 0x…", text)


def shown(value: object) -> str:
    """Return `repr(value)` on one line, without addresses and cut to 200 characters; a note if `__repr__` raises."""
    try:
        text = repr(value)
    except Exception as problem:
        text = f"<{type(value).__name__} whose repr raises {type(problem).__name__}>"
    return without_addresses(" ".join(text[: SHOWN_MAX * 2].split()))[:SHOWN_MAX]


def message(problem: BaseException) -> str:
    """Return the text of an exception, or a note if its `__str__` raises."""
    if isinstance(problem, RecursionError):
        return "maximum recursion depth exceeded"  # the original text depends on where the stack happened to overflow
    try:
        return str(problem)
    except Exception as raised:
        return f"<its str raises {type(raised).__name__}>"


def described(problem: BaseException) -> str:
    """Return an exception's type and message on one line, without addresses and cut to 1,000 characters."""
    line = " ".join(f"{type(problem).__name__}: {message(problem)}{suggestion(problem)}".split())
    return without_addresses(line)[: 5 * SHOWN_MAX].removesuffix(":")


def location(problem: BaseException) -> str:
    """Return `file:line in function` of the innermost frame of user code, or "" if there is none.

    Code of a library that the pipeline called counts only if none of the user's own code is involved, and not if the
    library called back into this runtime and the callback raised. If the stack was exhausted, the outermost frame is
    named, because the innermost one depends on the depth at which the stack began.
    """
    if own := own_location(problem):
        return own
    frames = list(_frames(problem.__traceback__))
    return _named(problem, frames) if frames and not _raised_by_us(problem.__traceback__) else ""


def own_location(problem: BaseException) -> str:
    """Return the location in the user's own code, ignoring libraries; "" if none of its frames is involved."""
    if isinstance(problem, Recorded) and problem.where:
        return problem.where
    own = [step for step in _frames(problem.__traceback__) if not _of_a_library(step[0].co_filename)]
    return _named(problem, own) if own else ""


def _named(problem: BaseException, frames: Sequence[tuple[CodeType, int]]) -> str:
    code, line = frames[0] if isinstance(problem, RecursionError) else frames[-1]
    return f"{code.co_filename}:{line} in {code.co_name}"


def of_a_user(file: str) -> bool:
    """Return whether a file belongs to neither this runtime nor a library."""
    return not file.startswith(OURS) and not _of_a_library(file)


def _of_a_library(file: str) -> bool:
    installed = any(f"/{directory}/" in file for directory in ("site-packages", "dist-packages"))
    return installed or file.startswith((*LIBRARIES, "<")) or file.endswith(".pyx")  # compiled code has no source file


def _raised_by_us(step: TracebackType | None) -> bool:
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_filename.startswith(OURS)


def _frames(step: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(OURS):
            yield step.tb_frame.f_code, step.tb_lineno
        step = step.tb_next


def user_traceback(problem: BaseException) -> str:
    """Return the traceback of the exception and its causes as Python prints it, without frames of this runtime.

    The text has at most `TRACEBACK_CHARACTERS_MAX` characters; its end, which names the exception, is always kept.
    """
    if isinstance(problem, RecursionError):
        return f"{type(problem).__name__}: the stack was exhausted, first called at {location(problem)}\n"
    shown = traceback.TracebackException.from_exception(problem, compact=True)
    _leave_out_ours(shown)
    text = without_addresses("".join(shown.format()))
    if isinstance(problem, Recorded) and problem.trace:
        text = f"{problem.trace}{_CAUSE_MESSAGE}{text}"
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    return "[…]\n" + text[-TRACEBACK_CHARACTERS_MAX:]


def _leave_out_ours(shown: traceback.TracebackException | None) -> None:
    waiting, seen = [shown], set[int]()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        frames = [frame for frame in each.stack if not frame.filename.startswith(OURS)]
        if len(frames) > FRAMES_MAX:
            frames = frames[: FRAMES_MAX // 2] + frames[-FRAMES_MAX // 2 :]
        each.stack = traceback.StackSummary.from_list(frames)
        waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]
