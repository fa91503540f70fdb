"""The events that the supervisor's logic handles, from workers, agents, the supervisor's own journal and users.

Events from processes are decoded from control messages according to their types (`standby.network.control`), so the
limits on the content of a message are declared here.  Every such event contains the slot of its sender, which is the
identity of the sender's socket and not a claim in the message.  Times are the host's `time.monotonic_ns()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from causal.commands import EXTENTS_MAX, Files
from causal.logs.rollback import OrphanAnswer
from causal.task.activity import Activity
from causal.task.vitals import Vitals
from standby.supervision.effects import Record
from standby.supervision.hosts import SLOTS_MAX
from standby.supervision.task_counters import reason_invalid

LOG_CHARACTERS_MAX = 1 << 18
"""The largest number of characters in one message with log lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(Vitals):
    """The heartbeat of a worker, which contains its complete state."""

    slot: str
    pid: int
    endpoint: str
    task: str | None
    incarnation: int
    state: str
    epoch: int
    peers: Mapping[str, int] | None = None
    """The incarnation of each neighbour as the supervisor announced it to the worker; negative for a neighbour that
    is down.  None if nothing has changed."""

    def __post_init__(self) -> None:
        problem = reason_invalid(self.counters)
        if problem is not None:
            raise ValueError(problem)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The sign of life of a worker that is too busy to beat."""

    slot: str
    pid: int
    endpoint: str = ""
    state: str = ""
    """The state of the worker's task, if it has one."""
    doing: Activity | None = None
    waiting: tuple[int, str] | None = None
    remote: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that a task has reached, shown in the timeline of recoveries."""

    slot: str
    task: str
    incarnation: int
    phase: str
    at_ns: int
    detail: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotReported:
    """The state of a task at barrier `epoch` is on disk."""

    slot: str
    task: str
    incarnation: int
    epoch: int
    files: Files


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """A task's answer to an inquiry about lost determinants."""

    slot: str
    task: str
    incarnation: int
    number: int
    finding: OrphanAnswer

    def __post_init__(self) -> None:
        orphan, stands = self.finding.orphan, self.finding.stands
        if len(stands) > EXTENTS_MAX or any(min(extent) < 0 for extent in (*stands, *([orphan] if orphan else ()))):
            raise ValueError("extents below zero, or too many of them")


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker cannot continue; `definite` means that a retry would fail in the same way."""

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
    host: str = ""
    """The host of the agent."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The agent has seen a process end.  `status` is None if it is unknown, as for an adopted process."""

    slot: str
    pid: int
    at_ns: int
    status: int | None = None
    killed_ns: int | None = None
    """The time just before the agent sent SIGKILL, if that signal ended the process."""
    last_line: str = ""
    """The last line of the process's log."""
    restarting: bool = False
    """Whether the process is a companion that the agent restarts without an order."""
    host: str = ""
    """The host of the agent."""


@dataclass(frozen=True, slots=True)
class AgentBeat:
    """The heartbeat of an agent, which lists the living and the ended processes of its host."""

    slots: Mapping[str, int]
    dead: Mapping[str, int | None]
    killed: Mapping[str, int] = field(default_factory=dict)
    """Slot → when the agent killed its process, for each dead process that the agent killed."""
    computing: tuple[str, ...] = ()
    """The slots whose processes have used the processor since the agent's last check; the agent checks a few times
    within each time-out."""
    host: str = ""
    """The host to which the sender's key belongs; empty for the agent on the supervisor's own machine."""
    incarnation: int = 0
    """The incarnation that the supervisor has assigned to the host."""
    clock_ns: int | None = None
    """The host's own clock when the beat was sent; the answer reports when the beat was received."""
    clock_error_ns: int | None = None
    """The largest possible error of the host's estimate of the supervisor's time; None until the host has an
    estimate."""
    leaving: bool = False
    """Whether the host was asked to end and waits for its tasks to move."""
    roster: str = ""
    """The mark of the roster that the host currently has."""
    mark: Annotated[str, Meta(max_length=64)] = ""
    """The mark of the job description that the agent has."""
    job_ns: int | None = None
    """The time `clock_ns` converted by the host to the job's clock; a new supervisor adopts it."""


@dataclass(frozen=True, slots=True)
class HostHello:
    """An agent asks to join, or reports after a lost connection that its processes are still running."""

    host: str
    session: Annotated[str, Meta(min_length=1, max_length=64)]
    """The mark of the agent's current set of processes."""
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = SLOTS_MAX
    zone: str = ""
    machine: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    mark: Annotated[str, Meta(max_length=64)] = ""
    """The mark of the job description that the agent has."""
    version: Annotated[str, Meta(max_length=64)] = ""
    """The package version on the host."""
    clock_ns: int | None = None
    """The host's own clock when the message was sent."""
    breakable: bool | None = None
    """Whether the agent permits an order to kill it; None if the agent does not know this order."""
    changes: bool = False
    """Whether the agent can be sent another version of the job."""


@dataclass(frozen=True, slots=True)
class HostLog:
    """Complete lines from a host's logs; they are written to a file and do not reach the supervisor's logic."""

    host: str
    text: Annotated[str, Meta(max_length=LOG_CHARACTERS_MAX)]


@dataclass(frozen=True, slots=True)
class HostClosed:
    """The root process of the named session of a host has ended, or the host's key was revoked."""

    host: str
    session: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """The first event of a supervisor: all decisions of its predecessors, oldest first; empty for a new job."""

    records: tuple[Record, ...]
    manifest: tuple[int, Mapping[str, Files]] | None = None
    """The newest complete manifest on disk, which may be one checkpoint ahead of the journal."""


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The manifest of `epoch` is now durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    """The manifest of `epoch` could not be written; no part of it remains on disk."""

    epoch: int
    problem: str


@dataclass(frozen=True, slots=True)
class Admin:
    """A request from a user or from `causal kill`."""

    sender: str
    verb: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replied:
    """The state that a task stores for a key, returned to the client that asked for it."""

    slot: str
    to: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


FromProcess = (
    Beat | Pulse | Phase | SnapshotReported | OrphanReport | Failed | Started | Exited | AgentBeat | HostHello
    | HostClosed | Admin | Replied
)  # fmt: skip
"""Events that arrive as a control message."""

FromHost = FromProcess | HostLog
"""Events that arrive as a control message from another host, including that host's log lines."""

Event = FromProcess | Restored | ManifestWritten | ManifestFailed | Tick
