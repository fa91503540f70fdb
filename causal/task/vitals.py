"""The report of a process about itself in each heartbeat: one struct, from the worker to the supervisor and the view.

A new figure of a process is a field here.  `message` writes it, the supervisor's `Beat` has it, and the entry of the
process keeps it for the view (design 0032).
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
"""(key as it is shown, its share of the time in which the task worked)."""

ALWAYS = frozenset(
    ("state", "epoch", "acked", "followed", "counters", "first_record_ns", "last_output_ns", "rollback", "lost",
     "committed", "checked")
)  # fmt: skip
"""The fields that every heartbeat has; any other one is left out where it is empty."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of a process and of its task; the defaults are those of a standby that has loaded nothing.

    The order is that of the message.
    """

    state: str = "standby"
    epoch: int = 0
    acked: tuple[int, Files] | None = None
    """The last checkpoint that its task has written, with its files."""
    followed: int | None = None
    """The checkpoint that a standby has loaded."""
    counters: Mapping[str, Any] = field(default_factory=dict)
    first_record_ns: int | None = None
    last_output_ns: int | None = None
    rollback: int = 0
    """The number of the last decision about lost determinants that it has acted on."""
    lost: Extents = ()
    """The extents to which it could collect those of its own logs on whose rest others depend; it waits for a
    decision."""
    committed: int = 0
    """Rows of epochs below it are visible, where rows are staged."""
    checked: tuple[int, str] = (0, "")
    """The number of epochs performed again as a standby with the same result, and the difference that was found."""
    remote: str = ""
    """The endpoint for tasks on other hosts, `tcp://address:port`; empty in a job on one machine."""
    waiting: tuple[int, str] | None = None
    """(since, reason) while its task waits for its store."""
    doing: Activity | None = None
    """The work that it has been busy with for a while."""
    uploading: tuple[int, str] | None = None
    """(since, problem) while a snapshot takes long on its way to the shared store; the problem may be empty."""
    hot_keys: Annotated[tuple[HotKey, ...], Meta(max_length=REPORTED_MAX)] = ()
    """The keys that take the most of the task's time, the highest share first."""
    hot_standby: str = ""
    """The endpoint of the hot standby that the task echoes to."""
    shadow: Mapping[str, int | str] | None = None
    """The figures of a hot standby."""
    wanted_epoch: int = 0
    """The checkpoint that should complete now, because its task keeps so much until then; 0 for none."""
    unchanged: bool = False
    """Whether its task has performed nothing since barrier `epoch`."""

    def message(self) -> dict[str, Any]:
        """Return the fields as a part of a control message."""
        facts = {name: getattr(self, name) for name in _NAMES}
        return {name: _carried(value) for name, value in facts.items() if value or name in ALWAYS}


_NAMES = tuple(each.name for each in fields(Vitals))


def _carried(value: Any) -> Any:
    """Return a value as MessagePack carries it with the fewest bytes: lists for tuples."""
    if isinstance(value, tuple):
        return [_carried(each) for each in value]
    return value.message() if isinstance(value, Activity) else dict(value) if isinstance(value, Mapping) else value
