"""The effects that the supervisor's logic requests, and the order that makes them safe.

One step returns its effects in this order: every `Journal` first, then the others in the order in which they were
decided, and `EndJob` last.  A decision is therefore on disk before any process acts on it, and if a supervisor dies
between two effects, its successor knows of everything that was done.  Every effect other than `Journal` may be repeated
without harm, and is repeated until the beats confirm it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from causal.commands import Command, Files

Record = Mapping[str, Any]
"""A decision as stored in the journal: a mapping with the key `kind`."""


@dataclass(frozen=True, slots=True)
class Journal:
    """Write the decision to the journal, so that later effects may rely on it."""

    record: Record


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control message to the process in a slot."""

    slot: str
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Order the agent to start a process; the agent ignores a slot that it already knows."""

    slot: str
    role: str
    """`worker`, `worker:next`, or `companion:<name>`."""
    host: str = ""
    """The host whose agent starts the process; empty for the agent on the supervisor's own machine."""


@dataclass(frozen=True, slots=True)
class KillProcess:
    """Order the agent to send SIGKILL to a process; the agent then reports `exited`."""

    slot: str
    host: str = ""
    """The host of the process, if the supervisor knows it; otherwise the order goes to the host last heard for it."""


@dataclass(frozen=True, slots=True)
class SendHost:
    """Send a control message to the agent of a host."""

    host: str
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest durably, then report `ManifestWritten`, or `ManifestFailed` if that was not possible."""

    epoch: int
    files: Mapping[str, Files]


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove snapshots of epochs up to `through_epoch` that are not in `keep`, and manifests below `manifests_from`."""

    keep: frozenset[str]
    through_epoch: int
    manifests_from: int


@dataclass(frozen=True, slots=True)
class RecordEpoch:
    """Enter the epoch that checkpoint `epoch`, which consists of `files`, has ended in the recording of the job."""

    epoch: int
    files: Mapping[str, Files]


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job with status 0 if it has finished or 1 if it has failed; `reason` is one line."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Send the answer to a user's request."""

    to: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """Write one line to the supervisor's own log."""

    line: str


@dataclass(frozen=True, slots=True)
class CommitChange:
    """Make the change prepared in `change/` final, and begin again as the supervisor of the next version."""

    processes: tuple[Record, ...]
    """The decisions about the processes that have started for the next version."""
    started_max: int
    """The number of the process that was started last; no process of the next version may get it again."""
    to: str
    """The client to which the answer is sent."""
    request: int
    """The number of the client's request."""


Effect = (
    Journal
    | Send
    | SendHost
    | StartProcess
    | KillProcess
    | WriteManifest
    | RemoveFiles
    | RecordEpoch
    | EndJob
    | Answer
    | Note
    | CommitChange
)


def in_safe_order(effects: Iterable[Effect]) -> list[Effect]:
    """Sort effects into the order that the module promises; effects of the same rank keep their order."""
    rank = {Journal: 0, EndJob: 2}
    return sorted(effects, key=lambda effect: rank.get(type(effect), 1))


class Outbox:
    """Collects the effects of one step; each decision is applied to the supervisor's state immediately."""

    def __init__(self, apply: Callable[[Record], None]) -> None:
        self._apply = apply
        self._effects: list[Effect] = []

    def decide(self, kind: str, **facts: Any) -> None:
        """Journal a decision, and apply it with the same code that is used after a restart."""
        record = {"kind": kind, **facts}
        self._effects.append(Journal(record))
        self._apply(record)

    def send(self, slot: str, command: Command) -> None:
        self._effects.append(Send(slot, command.message()))

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Empty the outbox and return its effects in the safe order."""
        effects, self._effects = self._effects, []
        return in_safe_order(effects)
