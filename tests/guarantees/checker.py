"""Decides which guarantees a recorded run satisfies: those of docs/guarantees.md, which says why this decides them.

A run is explained if there is an execution without failures (a *reference* one) from some inputs to these outputs.

    exactly-once     from the inputs as they were
    at-most-once     from some of them, each wholly or not at all
    at-least-once    from the inputs with some of them more than once
    going back       from the inputs as they were, if each failure may take a task back to an earlier moment of its own

A run that has ended must also have all rows of the inputs that explain it.  Exactly-once implies the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tests.guarantees import going_back
from tests.guarantees.history import Element, Failed, History, Output, Spec

EXACTLY_ONCE, AT_MOST_ONCE, AT_LEAST_ONCE, GOING_BACK = "exactly-once", "at-most-once", "at-least-once", "going back"

Step = tuple[int, Hashable]
"""(place, key) within a channel."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guarantees that a run satisfies, and the number of rows of each kind that contradict exactly-once."""

    satisfied: tuple[str, ...]
    lost: int
    """(element, key) pairs without a row."""
    doubled: int
    """Rows of a pair that has one already."""
    contradicted: int
    """Rows that do not follow from the row before them in their key."""
    reordered: int
    """Rows of an element that entered its channel before the one of the row before, and were not doubled."""
    impossible: int
    """Rows that no element leaves, or in a key that another task has."""
    vanished: int
    """Rows that were taken back or changed."""


def check(spec: Spec, history: History) -> Verdict:
    """Return the verdict on a run."""
    outputs = history.outputs
    due = _due(spec, history.inputs)
    owners = _owners(outputs)
    impossible = sum(1 for each in outputs if (each.element, each.key) not in due or owners[each.key] != each.stage)
    seen = Counter((each.element, each.key) for each in outputs)
    missing = [pair for pair in due if pair not in seen]
    contradicted = _contradicted(spec, outputs)
    sound = not impossible and not history.vanished
    satisfied: list[str] = []
    lines = _lines(outputs)
    wanted = _wanted(due, owners, lines)
    if sound and not contradicted:
        if all(_begins(lines[at], wanted[at]) for at in lines) and not (history.ended and missing):
            satisfied.append(EXACTLY_ONCE)
        if all(_within(lines[at], wanted[at]) for at in lines) and _whole(spec, seen, history, most=1):
            satisfied.append(AT_MOST_ONCE)
        all_there = not (history.ended and missing) and _whole(spec, seen, history, most=None)
        if all_there and _ordered(lines) and all(_within(_up_to(wanted[at], lines[at]), lines[at]) for at in lines):
            satisfied.append(AT_LEAST_ONCE)
    whole = not (history.ended and missing)
    if EXACTLY_ONCE in satisfied or (sound and whole and _goes_back(spec, history, wanted)):
        satisfied.append(GOING_BACK)  # a run without failures is one in which no failure takes a task back
    return Verdict(
        tuple(satisfied),
        lost=len(missing) if history.ended else 0,
        doubled=sum(seen.values()) - len(seen),
        contradicted=contradicted,
        reordered=_reordered(outputs),
        impossible=impossible,
        vanished=history.vanished,
    )


def _due(spec: Spec, inputs: Mapping[str, int]) -> dict[tuple[Element, Hashable], None]:
    """Return every (element, key) that has a row, channel by channel in the order of the channel."""
    elements = (Element(channel, place) for channel, count in inputs.items() for place in range(count))
    return {(element, key): None for element in elements for key in spec.keys(element)}


def _owners(outputs: Sequence[Output]) -> dict[Hashable, str]:
    """Key → task that has it, which is the first that showed a row of it."""
    owners: dict[Hashable, str] = {}
    for each in outputs:
        owners.setdefault(each.key, each.stage)
    return owners


def _contradicted(spec: Spec, outputs: Sequence[Output]) -> int:
    last: dict[Hashable, Output] = {}
    count = 0
    for each in outputs:
        count += not spec.follows(last.get(each.key), each)
        last[each.key] = each
    return count


def _reordered(outputs: Sequence[Output]) -> int:
    last: dict[tuple[str, str], int] = {}
    seen: set[tuple[Element, Hashable]] = set()
    count = 0
    for each in outputs:
        at = (each.stage, each.element.channel)
        if (each.element, each.key) not in seen:
            count += each.element.place < last.get(at, 0)
            last[at] = max(each.element.place, last.get(at, 0))
        seen.add((each.element, each.key))
    return count


def _lines(outputs: Sequence[Output]) -> dict[tuple[str, str], list[Step]]:
    """Return the steps of each task on each channel, in order: a task is one process and a channel is ordered."""
    lines: dict[tuple[str, str], list[Step]] = {}
    for each in outputs:
        lines.setdefault((each.stage, each.element.channel), []).append((each.element.place, each.key))
    return lines


def _wanted(
    due: Mapping[tuple[Element, Hashable], None],
    owners: Mapping[Hashable, str],
    lines: Mapping[tuple[str, str], list[Step]],
) -> dict[tuple[str, str], list[Step]]:
    """Return the steps that an execution without failures has there."""
    wanted: dict[tuple[str, str], list[Step]] = {at: [] for at in lines}
    for element, key in due:
        at = (owners.get(key, ""), element.channel)
        if at in wanted:
            wanted[at].append((element.place, key))
    return wanted


def _begins(line: list[Step], wanted: list[Step]) -> bool:
    return line == wanted[: len(line)]


def _within(line: list[Step], wanted: list[Step]) -> bool:
    """Return whether `line` is `wanted` with some left out."""
    rest: Iterator[Step] = iter(wanted)
    return all(any(step == other for other in rest) for step in line)


def _up_to(wanted: list[Step], line: list[Step]) -> list[Step]:
    """Return the part of the wanted steps up to the furthest one that the line has reached."""
    shown = set(line)
    reach = max((at for at, step in enumerate(wanted) if step in shown), default=-1)
    return wanted[: reach + 1]


def _whole(spec: Spec, seen: Counter[tuple[Element, Hashable]], history: History, most: int | None) -> bool:
    """Return whether each element left its rows equally often in all of its keys; a run under way may have some to
    come.
    """
    for element in {element: None for element, _ in seen}:
        counts = [seen[element, key] for key in spec.keys(element)]
        if (history.ended and len(set(counts)) > 1) or (most is not None and max(counts) > most):
            return False
    return True


def _ordered(lines: Mapping[tuple[str, str], list[Step]]) -> bool:
    """Return whether one order of the inputs, repeats counted apart, explains what all tasks showed of a channel."""
    after: dict[tuple[str, int, int], set[tuple[str, int, int]]] = {}
    for (_, channel), line in lines.items():
        times: Counter[Step] = Counter()
        before: tuple[str, int, int] | None = None
        for step in line:
            node = (channel, step[0], times[step])
            times[step] += 1
            waits = after.setdefault(node, set())
            if before is not None and before != node:
                waits.add(before)
            before = node
    try:
        TopologicalSorter(after).prepare()
    except CycleError:
        return False
    return True


def _goes_back(
    spec: Spec,
    history: History,
    wanted: Mapping[tuple[str, str], Sequence[Step]],
) -> bool:
    """Return whether that explains every task for itself."""
    tasks = {stage: None for stage, _ in wanted}
    return all(
        going_back.explained(
            spec,
            [event for event in history.events if isinstance(event, Failed) or event.stage == task],
            {channel: steps for (stage, channel), steps in wanted.items() if stage == task},
            history.ended,
        )
        for task in tasks
    )
