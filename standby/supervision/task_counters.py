"""Task counters that outlive the processes that reported them.

Each worker counts from its own start and reports its totals in its beats.  The value for a task is the sum of the last
reports of its dead incarnations and of the living one. There are two exceptions: positions are absolute, so the highest
one counts, and levels exist only for the living incarnation.  The counts of operators are part of the operators' state,
so they too are absolute, and they are rolled back with that state.  Beats are not journaled; a resumed job continues
from the counters in the last view from before it was resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add
from typing import Any, TypeAlias

from standby.supervision.effects import Record
from standby.supervision.figures import Merge, names
from standby.supervision.job_view import Number

POSITIONS, LEVELS = names(Merge.POSITION), names(Merge.LEVEL)
HIGHEST = names(Merge.POSITION, Merge.TOTAL, Merge.PEAK)
COUNTS = "counts"
"""Operator → reason → the number of elements that were dropped, held back or revised."""


Counted: TypeAlias = "Number | dict[str | float, Counted]"
"""A counter: a single number, or numbers by kind, reason or bound."""
Counters = Mapping[str, Counted]
"""The counters of one task, by name."""


def combined(one: Counted, other: Counted, of: Callable[[Number, Number], Number]) -> Counted:
    """Combine two values of one counter part by part with `of`; return the later value if their forms differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: combined(one[key], value, of) if key in one else value for key, value in other.items()}
        return {**one, **both}
    return other if isinstance(one, dict) or isinstance(other, dict) else of(one, other)


def merged(one: Counters, other: Counters) -> dict[str, Counted]:
    """Merge the counters of two incarnations of one task; `other` belongs to the later one."""
    result = dict(one)
    for name, value in other.items():
        highest = name == COUNTS or (name in HIGHEST and not isinstance(value, dict))
        kept = name in one and name not in LEVELS
        result[name] = combined(one[name], value, max if highest else add) if kept else value
    return result


def lasting(tasks: Any) -> dict[str, dict[str, Counted]]:
    """Return the counters in a view that a resumed job continues, by task; empty if they are damaged."""
    try:
        figures = {task["task"]: {n: _raw(n, v) for n, v in task["figures"].items()} for task in tasks}
    except (TypeError, KeyError, ValueError, AttributeError):
        return {}
    if any(not isinstance(task, str) or reason_invalid(each) for task, each in figures.items()):
        return {}
    left = POSITIONS | LEVELS | {COUNTS}
    return {task: {n: v for n, v in each.items() if n not in left} for task, each in figures.items()}


def _raw(name: str, value: Any) -> Any:
    """Convert a value in a view to the form that tasks report, because JSON turns latency bounds into strings."""
    return {float(bound): count for bound, count in value.items()} if name == "latency_ms_buckets" else value


def reason_invalid(counters: Mapping[Any, Any]) -> str | None:
    """Return why these values are not valid counters; None if they are valid."""
    for name, value in counters.items():
        if not isinstance(name, str):
            return f"the counter {name!r} has no name"
        if not (_counts(value) if name == COUNTS else _numbers(value if isinstance(value, dict) else {"": value})):
            return f"the counter {name} is not a number"
    return None


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, (int, float)) and type(v) is not bool for v in value.values())


def _counts(value: Any) -> bool:
    """Return whether the value maps operator names to reasons and counts, with strings as names and numbers as
    counts.
    """
    return isinstance(value, dict) and all(
        isinstance(operator, str) and _numbers(reasons) and all(isinstance(reason, str) for reason in reasons)
        for operator, reasons in value.items()
    )


class TaskCounters:
    """The counters of all tasks of a job."""

    def __init__(self) -> None:
        self._retired: dict[str, dict[str, Counted]] = {}
        self._living: dict[str, tuple[int, Counters]] = {}
        self.first_record_ns: int | None = None
        """The time at which the first record entered the job."""
        self.life_first_record_ns: int | None = None
        """The time of the first record since the job was last resumed; injected kills are timed from it."""
        self.last_output_ns: int | None = None
        self._resumed = False
        self._before: dict[str, dict[str, Number]] = {}
        """Each task's positions when the job was last resumed."""

    def begins_at(self, task: str, counters: Counters) -> dict[str, int] | None:
        """Return a task's positions, based on the counters in its first beat since the job was resumed.

        The positions include progress that a killed supervisor had not journaled.

        Returns: None for later beats, or if the job was not resumed.
        """
        if not self._resumed or task in self._before:
            return None
        reached = merged(self._retired.get(task, {}), counters)
        return {name: int(n) for name, n in sorted(reached.items()) if name in POSITIONS and not isinstance(n, dict)}

    def before(self, figure: str) -> dict[str, Number]:
        """Return a position of each task at the time the job was last resumed; empty if it was never resumed."""
        return {task: positions.get(figure, 0) for task, positions in self._before.items()}

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern counters has no effect."""
        kind = record["kind"]
        if kind == "gone" and record["task"]:
            self._retire(record["task"], record["incarnation"], record["counters"])
        elif kind == "phase" and "counters" in record:  # a later supervisor may never receive a beat from the process
            self.update(record["task"], record["incarnation"], record["counters"], record["last_output_ns"])
        elif kind == "rolled_back":
            for task in record["tasks"]:
                if task in self._living:
                    self._retire(task, *self._living[task])
                for name in sorted((POSITIONS | {COUNTS}) & set(self._retired.get(task, {}))):
                    del self._retired[task][name]  # positions and operator state are rolled back with the task
        elif kind == "first_record":
            if self.first_record_ns is None or record["at_ns"] < self.first_record_ns:
                self.first_record_ns = record["at_ns"]
            self.life_first_record_ns = record["at_ns"]
        elif kind == "resumed_at":
            self._before[record["task"]] = record["positions"]
        elif kind == "resumed":
            self.life_first_record_ns = None
            self._resumed, self._before = True, {}
            if self.first_record_ns is not None and self.first_record_ns > record["at_ns"]:
                self.first_record_ns = None  # the machine was restarted, which reset its clock
            for task, (incarnation, counters) in list(self._living.items()):
                self._retire(task, incarnation, counters)
            for task, figures in record.get("figures", {}).items():
                before = self._retired.get(task, {})  # of two values, the higher one includes the lower one
                self._retired[task] = {**before, **{n: combined(v, before.get(n, v), max) for n, v in figures.items()}}

    def _retire(self, task: str, incarnation: int, counters: Counters) -> None:
        lasting = {name: value for name, value in counters.items() if name not in LEVELS}
        self._retired[task] = merged(self._retired.get(task, {}), lasting)
        living = self._living.get(task)
        if living is not None and living[0] <= incarnation:
            del self._living[task]

    def update(self, task: str, incarnation: int, counters: Counters, last_output_ns: int | None) -> None:
        """Record the counters from a beat of the current incarnation."""
        self._living[task] = (incarnation, counters)
        if last_output_ns is not None and (self.last_output_ns is None or last_output_ns > self.last_output_ns):
            self.last_output_ns = last_output_ns

    def last_reported(self, task: str, incarnation: int) -> Counters:
        """Return the counters from the last beat of that incarnation; empty if there are none."""
        living = self._living.get(task)
        return living[1] if living is not None and living[0] == incarnation else {}

    def of(self, task: str) -> dict[str, Counted]:
        """Return all counters of a task, merged over its incarnations."""
        living = self._living.get(task)
        return merged(self._retired.get(task, {}), living[1] if living is not None else {})
