"""What the supervisor's logic is told: by workers, by the agent, by its own journal, by people.

Everything that comes from a process carries the slot it came from (the identity of its socket, not a
claim in the message).  Times are `time.monotonic_ns()` of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.activity import Activity
from causal.rollback import Extent, Finding
from standby.effects import Files, Record


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker lives; this is all it is."""

    slot: str
    pid: int
    endpoint: str
    task: str | None
    incarnation: int
    state: str
    epoch: int
    acked: tuple[int, Files] | None = None
    followed: int | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)
    first_record_ns: int | None = None
    last_output_ns: int | None = None
    rollback: int = 0
    """Number of the last decision about lost determinants that it has acted on."""
    lost: tuple[Extent, ...] = ()
    """How far it could collect those of its own logs of which others depend on more; it waits for a decision."""
    peers: Mapping[str, int] | None = None
    """The incarnation of each neighbour that it was told of; negative where it was told that it is down.  None for
    nothing new."""
    committed: int = 0
    """Rows of epochs below it are visible, where rows are staged."""
    checked: tuple[int, str] = (0, "")
    """Epochs performed again as a standby and found the same; what was found that was not."""
    waiting: tuple[int, str] | None = None
    """Since when its task waits for its store, and why."""
    doing: Activity | None = None
    """What it has worked on for a while."""
    wanted_epoch: int = 0
    """The checkpoint that should complete now, because its task keeps so much until then; 0 for none."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A worker lives, and is too busy to beat."""

    slot: str
    pid: int
    endpoint: str = ""
    state: str = ""
    """The word for its task's state, where it has a task."""
    doing: Activity | None = None
    waiting: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of a task's life that the timeline of recoveries shows."""

    slot: str
    task: str
    incarnation: int
    phase: str
    at_ns: int
    detail: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a task at barrier `epoch` is on disk."""

    slot: str
    task: str
    incarnation: int
    epoch: int
    files: Files


@dataclass(frozen=True, slots=True)
class Found:
    """A task's answer to an inquiry about lost determinants."""

    slot: str
    task: str
    incarnation: int
    number: int
    finding: Finding


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker cannot go on; `definite`: trying again would fail again."""

    slot: str
    task: str | None
    incarnation: int
    error: str
    message: str
    definite: bool


@dataclass(frozen=True, slots=True)
class Started:
    """The agent has started the process of a slot."""

    slot: str
    pid: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The agent has seen a process end.  `status` is None where nobody can know it (an adopted process)."""

    slot: str
    pid: int
    at_ns: int
    status: int | None = None
    killed_ns: int | None = None
    """The moment right before the agent's SIGKILL, where that is what ended it."""
    last_line: str = ""
    """The last line of the process's log."""
    restarting: bool = False
    """A companion that the agent starts again by itself."""


@dataclass(frozen=True, slots=True)
class AgentBeat:
    """All processes that the agent has: the ones that live, and those that ended."""

    slots: Mapping[str, int]
    dead: Mapping[str, int | None]
    killed: Mapping[str, int] = field(default_factory=dict)
    """When the agent killed those of the dead that it killed."""
    computing: tuple[str, ...] = ()
    """Slots whose processes have used the processor since it last looked; it looks a few times per limit of silence."""


@dataclass(frozen=True, slots=True)
class Restored:
    """First event of a supervisor's life: all that its predecessors decided, oldest first; empty on a fresh start."""

    records: tuple[Record, ...]
    manifest: tuple[int, Mapping[str, Files]] | None = None
    """The newest complete manifest on disk, which may be one ahead of the journal."""


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The manifest of `epoch` is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    """The manifest could not be written; nothing of it is trusted."""

    epoch: int
    problem: str


@dataclass(frozen=True, slots=True)
class Admin:
    """A request of a person, or of `causal kill`."""

    sender: str
    verb: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replied:
    """What a task keeps for a key, for the person that asked."""

    slot: str
    to: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


FromProcess = Beat | Pulse | Phase | Snapshot | Found | Failed | Started | Exited | AgentBeat | Admin | Replied
"""What arrives as a control message."""

Event = FromProcess | Restored | ManifestWritten | ManifestFailed | Tick
