"""A process's report about itself in each heartbeat: one struct, from the worker to the supervisor and the view.

To add a process metric, add a field here. `message` writes it, the supervisor's `Beat` contains it, and the
supervisor's entry for the process keeps it for the view (design 0032).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from causal.commands import Extents, Files
from causal.task.activity import Activity
from causal.task.hot_keys import REPORTED_MAX, TEXT_MAX

HotKey = tuple[Annotated[str, Meta(max_length=TEXT_MAX)], Annotated[float, Meta(ge=0, le=1)]]
"""(key as displayed, share of the time in which the task was working)."""

ALWAYS = frozenset(
    ("state", "epoch", "acked", "followed", "counters", "first_record_ns", "last_output_ns", "rollback", "lost",
     "committed", "checked")
)  # fmt: skip
"""The fields that every heartbeat contains; any other field is omitted if it is empty."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of a process and of its task; the defaults are those of a standby that has not loaded anything.

    The fields are in the same order as in the message.
    """

    state: str = "standby"
    epoch: int = 0
    acked: tuple[int, Files] | None = None
    """The last checkpoint for which the task has written its snapshot, and the files of that snapshot."""
    followed: int | None = None
    """The checkpoint that the standby has loaded."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    first_record_ns: int | None = None
    last_output_ns: int | None = None
    rollback: int = 0
    """The number of the last decision about lost determinants on which the process has acted."""
    lost: Extents = ()
    """The collected extents of the task's own log for epochs in which other tasks depend on more bytes; if there are
    any, the task waits for a decision."""
    committed: int = 0
    """The epoch below which rows are visible, if rows are staged."""
    checked: tuple[int, str] = (0, "")
    """The number of epochs that this process, as a standby, has rehearsed with the same result, and the difference, if
    one was detected."""
    remote: str = ""
    """The endpoint for tasks on other hosts, `tcp://address:port`; empty in a job on one machine."""
    waiting: tuple[int, str] | None = None
    """(since, reason) while the task is waiting for its store."""
    doing: Activity | None = None
    """The work with which the process has been busy for a while."""
    uploading: tuple[int, str] | None = None
    """(since, problem) while the upload of a snapshot to the shared store is slow; the problem may be empty."""
    hot_keys: Annotated[tuple[HotKey, ...], Meta(max_length=REPORTED_MAX)] = ()
    """The keys on which the task spends the most time, in descending order of their share."""
    hot_standby: str = ""
    """The endpoint of the hot standby to which the task sends its echo."""
    shadow: Mapping[str, int | str] | None = None
    """The metrics of a hot standby."""
    wanted_epoch: int = 0
    """The checkpoint that should complete now because the data kept until then is approaching a limit; 0 if there is
    none."""
    unchanged: bool = False
    """Whether the task has performed nothing since barrier `epoch`."""
    input_complete: int = 0
    """The first barrier before which the task delivers all of its recorded input, which has no end; 0 until then."""

    def message(self) -> dict[str, Any]:
        """Return the fields as part of a control message."""
        facts = {name: getattr(self, name) for name in _NAMES}
        return {name: _carried(value) for name, value in facts.items() if value or name in ALWAYS}


_NAMES = tuple(each.name for each in fields(Vitals))


def _carried(value: Any) -> Any:
    """Return a value in the form with the shortest MessagePack encoding, with lists instead of tuples."""
    if isinstance(value, tuple):
        return [_carried(each) for each in value]
    return value.message() if isinstance(value, Activity) else dict(value) if isinstance(value, Mapping) else value
