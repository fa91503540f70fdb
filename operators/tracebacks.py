"""The exception that user code raised, where, and its traceback without the frames of this runtime.

All are functions of the exception alone: they stand in dead letters, which a replay must write again to the byte
(D10).  How deep the runtime called the user's function, and at what address an object lay, differ from run to run, so
neither appears.
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
"""The most frames of one exception that are shown: half of them the first, half the last."""

_HOME = Path(__file__).resolve().parent.parent
OURS = tuple(f"{_HOME / package}/" for package in ("causal", "operators", "standby", "deploy", "pyspark_causal"))
LIBRARIES = tuple(
    f"{directory}/"
    for directory in dict.fromkeys(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
)
_CAUSE_MESSAGE = "\nThe above exception was the direct cause of the following exception:\n\n"
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


class Recorded(Exception):
    """A failure that was recorded when it happened, in this execution or in the one that is replayed.

    Attributes:
        where: `file:line in function` of the user's code that raised; "" where none of it took part.
        trace: its traceback as `user_traceback` writes it, or "".
    """

    where = ""
    trace = ""


def without_addresses(text: str) -> str:
    """Return `text` without addresses of objects, which no two processes share."""
    return _ADDRESS.sub("at 0x…", text)


def shown(value: object) -> str:
    """Return `repr(value)` in one line without addresses, cut to 200 characters; or a note where `__repr__` raises."""
    try:
        text = repr(value)
    except Exception as problem:
        text = f"<{type(value).__name__} whose repr raises {type(problem).__name__}>"
    return without_addresses(" ".join(text[: SHOWN_MAX * 2].split()))[:SHOWN_MAX]


def message(problem: BaseException) -> str:
    """Return the text of an exception, or that its `__str__` raises."""
    if isinstance(problem, RecursionError):
        return "maximum recursion depth exceeded"  # the line depends on where the stack happened to end
    try:
        return str(problem)
    except Exception as raised:
        return f"<its str raises {type(raised).__name__}>"


def described(problem: BaseException) -> str:
    """Return the type and message of an exception in one line without addresses, cut to 1,000 characters."""
    line = " ".join(f"{type(problem).__name__}: {message(problem)}{suggestion(problem)}".split())
    return without_addresses(line)[: 5 * SHOWN_MAX].removesuffix(":")


def location(problem: BaseException) -> str:
    """Return `file:line in function` of the innermost frame of user code; "" where there is none.

    Code of a library that the pipeline called counts only where there is no frame of the user's own, and not where this
    runtime called it and raised in a callback. Where the stack was exhausted the outermost frame is named: which of the
    others was the last depends on how deep it began.
    """
    if own := own_location(problem):
        return own
    frames = list(_frames(problem.__traceback__))
    return _named(problem, frames) if frames and not _raised_by_us(problem.__traceback__) else ""


def own_location(problem: BaseException) -> str:
    """Return the same where a frame of the user's own is there; otherwise ""."""
    if isinstance(problem, Recorded) and problem.where:
        return problem.where
    own = [step for step in _frames(problem.__traceback__) if not _of_a_library(step[0].co_filename)]
    return _named(problem, own) if own else ""


def _named(problem: BaseException, frames: Sequence[tuple[CodeType, int]]) -> str:
    code, line = frames[0] if isinstance(problem, RecursionError) else frames[-1]
    return f"{code.co_filename}:{line} in {code.co_name}"


def of_a_user(file: str) -> bool:
    """Return whether a file belongs neither to this runtime nor to a library."""
    return not file.startswith(OURS) and not _of_a_library(file)


def _of_a_library(file: str) -> bool:
    installed = any(f"/{directory}/" in file for directory in ("site-packages", "dist-packages"))
    return installed or file.startswith((*LIBRARIES, "<")) or file.endswith(".pyx")  # compiled: there is no such file


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
    """Return the traceback of the exception and of its causes, as Python prints it, without frames of this runtime.

    At most `TRACEBACK_CHARACTERS_MAX` characters: the end, which names what was raised, is always there.
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
