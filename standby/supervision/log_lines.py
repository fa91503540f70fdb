"""One-line descriptions of the supervisor's decisions, for `logs/supervisor.log`.

Each failure and each step of a recovery is logged, but not checkpoints and beats, so the log of a healthy job does not
grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from standby.supervision.effects import Record

TASKS_NAMED_MAX = 8


def line_of(record: Record) -> str | None:
    """Return the log line for one decision; None for a kind of decision that is not logged."""
    describe = _LINES.get(record["kind"])
    return None if describe is None else describe(record)


def _promoted(record: Record) -> str:
    task, slot, incarnation = record["task"], record["slot"], record["incarnation"]
    if incarnation == 1:
        return f"{task} is {slot}"
    return (
        f"{task}: {slot} takes over as incarnation {incarnation} ({record['mode']}), from checkpoint {record['epoch']}"
    )


def _gone(record: Record) -> str | None:
    if not record["recover"]:
        return None
    if not record["task"]:
        return f"{record['slot']}, which ran no task, has ended"
    return f"{record['task']}: {record['slot']} has ended, which was incarnation {record['incarnation']}"


def _phase(record: Record) -> str | None:
    task, incarnation = record["task"], record["incarnation"]
    if record["phase"] == "replayed" and incarnation > 1:
        return f"{task}: incarnation {incarnation} has replayed {record['detail']} elements"
    if record["phase"] == "running" and incarnation > 1:
        return f"{task}: incarnation {incarnation} is live"
    return None


def _rolled_back(record: Record) -> str:
    tasks: Mapping[str, int] = record["tasks"]
    named = sorted(tasks)[:TASKS_NAMED_MAX]
    more = f" and {len(tasks) - len(named)} more" if len(tasks) > len(named) else ""
    why = next((f": {text}" for _, text in sorted(record["why"].items()) if text), "")
    return f"{', '.join(named)}{more} roll back to the last checkpoint{why}"


def _savepoint(record: Record) -> str:
    return f"checkpoint {record['epoch']} will be a savepoint{', where the sources stop' if record['final'] else ''}"


def _change(record: Record) -> str:
    if record["step"] == "prepare" and record["rollback"]:
        return f"the job will be rolled back to savepoint {record['rollback']}"
    return _CHANGES[record["step"]]


_CHANGES: Mapping[str, str] = {
    "prepare": "the next version of the job is prepared",
    "end": "the current version ends, and the next version takes its place",
    "withdraw": "rows are withdrawn",
    "return": "the current version continues after its final savepoint",
    "over": "the change is over",
}

_LINES: Mapping[str, Callable[[Record], str | None]] = {
    "change": _change,
    "promoted": _promoted,
    "gone": _gone,
    "phase": _phase,
    "rolled_back": _rolled_back,
    "savepoint": _savepoint,
    "killing": lambda record: f"{record['slot']} is killed: {record['why']}",
    "inquired": lambda record: (
        "determinants are lost: all tasks that channels connect are asked whether they depend on them"
    ),
}
