"""The tail of a recording: what the tasks performed after the last complete epoch, until the job ended (0053).

Each task has written its log when its process ended. A job that was killed, or that runs, has no tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from causal.errors import CorruptData
from causal.recorded_files import LOGS, EpochLog, UnfinishedLog, VersionEntry, log_name, unfinished_log
from causal.storage.files import parts_of
from causal.storage.objects import Missing, Objects


@dataclass(frozen=True, slots=True)
class Tail:
    """The tail of a recording.

    Attributes:
        epochs: the epochs; one task may have ended in an earlier one than another.
        logs: (task, epoch) → the log.
        ends: task → the epoch in which it ended, and its incarnation.
    """

    epochs: range
    logs: Mapping[tuple[str, int], EpochLog]
    ends: Mapping[str, UnfinishedLog]

    @property
    def ended_ns(self) -> int:
        """The wall-clock time at which the last task ended."""
        return max(each.ended_ns for each in self.logs.values())

    def failed(self) -> list[tuple[UnfinishedLog, EpochLog]]:
        """Return the ends that are exceptions, with their logs."""
        ends = [(end, self.logs[task, end.epoch]) for task, end in sorted(self.ends.items())]
        return [(end, log) for end, log in ends if log.failure]


def tail_of(objects: Objects, version: VersionEntry, end: int) -> Tail | None:
    """Return the tail that begins at a barrier; None if the log of any task is missing or damaged.

    Args:
        objects: the files of the recording.
        version: the version that performed it.
    """
    names, ends = set(objects.names(LOGS)), dict[str, UnfinishedLog]()
    for name in names:
        each = unfinished_log(name)
        if each is None or each.incarnation < version.config["first_incarnation"]:
            continue
        if each.task not in ends or each.incarnation > ends[each.task].incarnation:
            ends[each.task] = each
    if not set(version.tasks) <= ends.keys():
        return None
    places = {
        (task, epoch): log_name(task, epoch, each.incarnation, unfinished=epoch == each.epoch)
        for task, each in ends.items()
        for epoch in range(end, each.epoch + 1)
    }
    if {task for task, _ in places} != set(version.tasks) or not names.issuperset(places.values()):
        return None
    try:
        contents = objects.read_all(list(places.values()))
        logs = {
            place: EpochLog.of(list(parts_of(content, objects.where(name))), objects.where(name))
            for (place, name), content in zip(places.items(), contents, strict=True)
        }
    except (Missing, CorruptData):  # of a power failure, or because the job is being resumed
        return None
    return Tail(range(end, max(each.epoch for each in ends.values()) + 1), logs, ends)
