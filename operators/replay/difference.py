"""The first step at which two traces of the same event differ, and the line of user code that makes it (0064).

This module compares text only. Steps are taken before a line is executed, so the line to name is the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.replay.user_trace import Step

ABSENT = "-"
KEPT = ("self.", "class ", "global ")
"""The beginnings of the names of variables that outlive an event."""

Uses = Mapping[str, Mapping[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two traces.

    Attributes:
        step: the number of the step.
        file, line, function: the line whose execution differs, or which uses what differs.
        name: the variable; `return` for what is returned or yielded; empty if another line follows.
        before, after: its values.
        kept: whether it differed before the function was called, so it has been kept from an earlier event.
        ordered: whether the line uses a set.
    """

    step: int
    file: str
    line: int
    function: str
    name: str
    before: str
    after: str
    kept: bool = False
    ordered: bool = False


def first_difference(one: Sequence[Step], other: Sequence[Step], uses: Uses) -> Difference | None:
    """Return the first difference of two traces, or None if they are equal.

    Args:
        uses: the lines of functions that use a name, as in `UserTrace.uses`.
    """
    for place, (before, after) in enumerate(zip(one, other, strict=False)):
        if _position(before) != _position(after):
            return _another_line(one, other, place)
        if before.values != after.values:
            return _another_value(one, other, place, uses)
    return None if len(one) == len(other) else _another_line(one, other, min(len(one), len(other)))


def _position(step: Step) -> tuple[str, str, int, str]:
    return step.event, step.file, step.line, step.function


def _another_line(one: Sequence[Step], other: Sequence[Step], place: int) -> Difference:
    """Return that different lines follow the same line."""
    last = one[place - 1] if place else (one or other)[0]
    before, after = (f"line {each[place].line} follows" if place < len(each) else "it ends" for each in (one, other))
    return Difference(place, last.file, last.line, last.function, "", before, after, ordered=bool(last.ordered))


def _another_value(one: Sequence[Step], other: Sequence[Step], place: int, uses: Uses) -> Difference:
    before, after = one[place].values, other[place].values
    names = [name for name in (*before, *after) if before.get(name) != after.get(name)]
    name = next((each for each in names if not each.startswith(KEPT)), names[0])
    if one[place].event == "return" and "return" in names:
        name = "return"
    step = one[place]
    kept = step.event == "call" and name.startswith(KEPT)
    if kept:
        step = _that_uses(one, place, name.rpartition(".")[2].rpartition(" ")[2], uses) or step
        line = step.line
    elif step.event == "return" and name == "return":
        line = step.line
    else:
        earlier = [each for each in one[:place] if each.frame == step.frame] or list(one[:place])
        line = earlier[-1].line if earlier else step.line
        step = earlier[-1] if earlier else step
    return Difference(
        place, step.file, line, step.function, name, before.get(name, ABSENT), after.get(name, ABSENT), kept,
        bool(step.ordered),
    )  # fmt: skip


def _that_uses(steps: Sequence[Step], place: int, name: str, uses: Uses) -> Step | None:
    """Return the first line that is executed from a step on and uses a name, or None if none does."""
    functions: dict[int, str] = {}
    for number, step in enumerate(steps):
        function = functions.setdefault(step.frame, f"{step.file}:{step.line}")
        if number >= place and step.event == "line" and step.line in uses.get(function, {}).get(name, ()):
            return step
    return None
