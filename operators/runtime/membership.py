"""A worker's side of the control plane: the messages that it handles, the resulting acts, and its reports.

This module is pure: its inputs are messages, reports of the running task and the passing of time; its outputs are acts
to be performed in order. The same class runs in a worker process and in the simulator. Every message may arrive twice,
and a message that is inconsistent with the current role is ignored. Each beat contains everything that a restarted
supervisor needs; beats are less frequent while nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from causal import commands
from causal.commands import AnyCommand
from causal.errors import PipelineError, invariant
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    HotStandbyDown,
    HotStandbyUp,
    InquiryResolved,
    JobEnded,
    OrphanQuery,
    PeerDown,
    PeerUp,
    StateQuery,
)
from causal.ids import HOT_STANDBY
from causal.logs.rollback import Rollback, read_rollback
from causal.records.values import NotCarried, encode
from causal.snapshot_files import SnapshotFile
from causal.task.vitals import Vitals
from causal.topology import Topology
from operators.runtime.hot_standby import Neighbour

REST_BEATS = 5
"""The factor by which a process with nothing new to report reduces its heartbeats. It still sends at least this many
heartbeats within the period of silence that counts as death."""

SPENT = ("busy_s", "blocked_s", "idle_s")
"""The counters that change even when nothing happens."""

PEERS_AGAIN_NS = 400_000_000
"""The interval at which a beat repeats the task's peers; with many neighbours, they make up most of a beat."""

PHASES_AFTER_NS = 20_000_000
"""The time for which the phases of a hot standby that takes over wait to be reported together: a report costs as much
as a part of the recovery."""

UNHURRIED = frozenset(("promoted", "collected", "replayed", "running", "first_output", "withdrawn"))
"""The phases of a recovery after which the supervisor has nothing to do."""

QUESTIONS_MAX = 64
"""The maximum number of questions about state that can wait for answers at the same time."""

INSPECTED_BYTES_MAX = 1 << 20
"""The maximum size of an answer to such a question; a control message can contain four times as much."""


def rest_ms(heartbeat_ms: int, heartbeat_timeout_ms: int) -> int:
    """Return the interval between heartbeats of a process that has nothing new to report."""
    return max(heartbeat_ms, min(REST_BEATS * heartbeat_ms, heartbeat_timeout_ms // REST_BEATS))


def _lasting(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a beat's facts without the counters that change even when nothing happens."""
    return {**facts, "counters": {name: value for name, value in facts["counters"].items() if name not in SPENT}}


@dataclass(frozen=True, slots=True)
class Commanded:
    """A command from the supervisor."""

    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Reported:
    """A report from the running task: a phase, a snapshot, or a verdict."""

    kind: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A report that the state requested by `Load` is in memory; `epoch` is None if it is no longer in memory."""

    epoch: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A report that time has passed."""


Input = Commanded | Reported | Loaded | Tick


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send a message to the supervisor; if a message is lost, the next beat makes up for it."""

    kind: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """Load the state of `task` that these files restore; `Loaded` reports success, and on failure the process fails."""

    task: int
    files: tuple[SnapshotFile, ...]
    epoch: int = 0
    """The checkpoint that the files belong to."""
    incarnation: int = 0
    """The incarnation of the task, as far as the supervisor knows."""
    neighbours: tuple[Neighbour, ...] = ()
    """The running downstream neighbours of the task, which a hot standby greets in advance."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Become `task` in the given incarnation, from the state at `epoch` that `files` restore.

    If the process already runs the task in a lower incarnation, it ends that incarnation and rolls back in place. The
    new incarnation inherits the known determinants that `rollback` keeps.
    """

    task: int
    incarnation: int
    epoch: int
    files: tuple[SnapshotFile, ...]
    rollback: Rollback


@dataclass(frozen=True, slots=True)
class Start:
    """Pass the task its first event, because all known peers have been introduced."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a downstream neighbour, replacing any existing connection."""

    task: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class Place:
    """Record an upstream neighbour's endpoint: only the host named in it, or else this host, may send for that task."""

    task: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class Feed:
    """Pass an event to the running task."""

    event: Event


@dataclass(frozen=True, slots=True)
class End:
    """End the process normally, after a final beat."""


Act = SendReport | Load | Begin | Start | Dial | Place | Feed | End


class Membership:
    """The role of one process of a job: at first a standby, and the task itself once it has been promoted.

    Args:
        heartbeat_ms: the interval between beats.
        vitals: called when a beat is due.
        remote: the endpoint for tasks on other hosts; empty in a job on one machine.
        rest_ms: the interval between beats that have nothing new to report; by default, `heartbeat_ms`.

    State: `task` is None until the process follows a task or is promoted; `serving` is true once it has been promoted.
    """

    def __init__(
        self,
        slot: str,
        pid: int,
        endpoint: str,
        topology: Topology,
        heartbeat_ms: int,
        vitals: Callable[[], Vitals],
        remote: str = "",
        rest_ms: int = 0,
    ) -> None:
        self.slot = slot
        self.task: int | None = None
        self.incarnation = 0
        self.serving = False
        self.beat_due_ns = 0
        self._pid = pid
        self._endpoint = endpoint
        self._remote = remote
        self._topology = topology
        self._heartbeat_ns = heartbeat_ms * 1_000_000
        self._rest_ns = max(self._heartbeat_ns, rest_ms * 1_000_000)
        self._beat_ns = self._compared_ns = 0
        """The times of the last beat and of the last check for news."""
        self._beat_facts: Mapping[str, Any] = {}
        """The last beat, without the facts that change even when nothing happens."""
        self._vitals = vitals
        self._followed: int | None = None
        self._hot_standby = ""
        """The endpoint of the hot standby to which the task echoes."""
        self._acked: Any = None
        """The last checkpoint written, already in the form that beats contain, because it may have many files."""
        self._peers: dict[str, tuple[str, int]] = {}
        self._peers_due_ns = 0
        self._shadows = self._takes_over = False
        """Whether this process is a hot standby, and whether it was one before its promotion."""
        self._phases: list[Act] = []
        """The reports of phases that wait for the next beat."""
        self._asking: dict[int, str] = {}
        self._questions = 0

    @property
    def name(self) -> str | None:
        """The name of the task that this process runs or follows as a standby."""
        return None if self.task is None else self._topology.tasks[self.task].name

    def handle(self, event: Input, now_ns: int) -> list[Act]:
        """Advance by one step.

        Raises:
            PipelineError: the supervisor names a task that is not in the graph.
        """
        if isinstance(event, Commanded):
            perform = _COMMANDS.get(type(event.command))
            return perform(self, event.command, now_ns) if perform is not None else []
        if isinstance(event, Reported):
            return self._reported(event, now_ns)
        if isinstance(event, Loaded):
            self._followed = event.epoch
            return self._beat(now_ns)
        return self._beat_if_due(now_ns)

    def stir(self, now_ns: int) -> None:
        """Record that the process is active and may have something to report, unless it only woke to send a beat."""
        if now_ns < self.beat_due_ns and not self._phases:
            self.beat_due_ns = min(self.beat_due_ns, self._compared_ns + self._heartbeat_ns)

    # -- out -----------------------------------------------------------------------------------------

    def _beat_if_due(self, now_ns: int) -> list[Act]:
        """Return a beat if one is due; postpone a beat that would repeat the last one."""
        if now_ns < self.beat_due_ns:
            return []
        facts = self._facts()
        rested_ns = self._beat_ns + self._rest_ns
        if self.beat_due_ns and not self._phases and now_ns < rested_ns and _lasting(facts) == self._beat_facts:
            self._compared_ns, self.beat_due_ns = now_ns, rested_ns
            return []
        return self._beat(now_ns, facts)

    def _facts(self) -> dict[str, Any]:
        """Return the fields of a heartbeat except for the peers: everything that a restarted supervisor needs."""
        vitals = replace(
            self._vitals(),
            acked=self._acked,
            followed=self._followed,
            remote=self._remote,
            hot_standby=self._hot_standby,
        )
        return {
            "pid": self._pid,
            "endpoint": self._endpoint,
            "task": self.name if self.serving else None,
            "incarnation": self.incarnation,
            **vitals.message(),
        }

    def _beat(self, now_ns: int, facts: dict[str, Any] | None = None) -> list[Act]:
        """Return a beat. The next is due after the rest interval, or sooner if the process becomes active."""
        facts = self._facts() if facts is None else facts
        self._beat_ns = self._compared_ns = now_ns
        self._beat_facts, self.beat_due_ns = _lasting(facts), now_ns + self._rest_ns
        if now_ns >= self._peers_due_ns:
            self._peers_due_ns = now_ns + PEERS_AGAIN_NS
            facts["peers"] = {name: at if endpoint else -at for name, (endpoint, at) in self._peers.items()}
        return [*self._take_phases(), SendReport("beat", facts)]

    def _take_phases(self) -> list[Act]:
        phases, self._phases = self._phases, []
        return phases

    def _reported(self, event: Reported, now_ns: int) -> list[Act]:
        invariant(self.serving, "only a task reports", slot=self.slot, kind=event.kind)
        if event.kind == "inspected":
            return self._inspected(event.facts["request"], event.facts["facts"])
        if event.kind == "snapshot":
            self._acked = [event.facts["epoch"], event.facts["files"]]
        report = SendReport(event.kind, {"task": self.name, "incarnation": self.incarnation, **event.facts})
        if event.kind == "phase" and event.facts["phase"] in UNHURRIED and self._takes_over:
            self.beat_due_ns = self.beat_due_ns if self._phases else now_ns + PHASES_AFTER_NS
            self._phases.append(report)
            return []
        self.beat_due_ns = 0 if event.kind == "phase" else self.beat_due_ns
        return [*self._take_phases(), report]

    def _inspected(self, request: int, facts: Mapping[str, Any]) -> list[Act]:
        """Return the answer to a question about a key, or an error if it is too large for a message."""
        to = self._asking.pop(request, None)
        if to is None:
            return []
        try:
            size = len(encode(dict(facts)))
            problem = f"its {size} bytes exceed the limit of an answer" if size > INSPECTED_BYTES_MAX else ""
        except NotCarried as cause:
            problem = f"it cannot be sent: {cause}"
        if problem:
            facts = {name: value for name, value in facts.items() if name != "tables"}
            facts = {**facts, "error": f"{problem}; ask without --live to see the last checkpoint"}
        return [SendReport("inspected", {"to": to, "facts": dict(facts)})]

    # -- in ------------------------------------------------------------------------------------------

    def _follow(self, command: commands.Follow, now_ns: int) -> list[Act]:
        if self.serving:
            return []
        self.task = self._index(command.task)
        self._shadows = command.incarnation > 0
        neighbours = tuple(Neighbour(self._index(name), *where) for name, where in sorted(command.peers.items()))
        return [Load(self.task, command.files, command.epoch, command.incarnation, neighbours)]

    def _promote(self, command: commands.Promote, now_ns: int) -> list[Act]:
        task = self._index(command.task)
        if self.serving and (task != self.task or command.incarnation <= self.incarnation):
            return []
        self._takes_over = self._shadows and not self.serving
        # From here on, this process reports as the task, so a failure to become the task is a failure of the task.
        self.task, self.incarnation, self.serving = task, command.incarnation, True
        files = command.files
        self._followed, self._hot_standby = None, ""
        self._acked = [command.epoch, [list(file) for file in files]] if files else None
        self._peers, self._peers_due_ns = {}, 0
        peers = [
            act
            for name, (endpoint, incarnation) in command.peers.items()
            for act in self._peer(commands.Peer(name, endpoint, incarnation), now_ns)
        ]
        dialled = [act for act in peers if isinstance(act, Dial)]  # these connect while the state is being prepared
        begin = Begin(task, self.incarnation, command.epoch, files, read_rollback(command.rollback))
        introduced = [act for act in peers if not isinstance(act, Dial)]
        reported = self._reported(Reported("phase", {"phase": "promoted", "at_ns": now_ns, "detail": 0}), now_ns)
        return [*dialled, begin, *introduced, *reported, Start()]

    def _peer(self, command: commands.Peer, now_ns: int) -> list[Act]:
        where = (command.endpoint, command.incarnation)
        if not self.serving or self._peers.get(command.task) == where:
            return []
        self._peers[command.task] = where
        self._peers_due_ns = 0
        index = self._index(command.task)
        introduced = Feed(PeerUp(index, command.incarnation, command.endpoint.startswith("tcp")))
        if index in self._topology.downstream(self.task):  # type: ignore[arg-type]
            return [Dial(index, command.endpoint), introduced]
        return [Place(index, command.endpoint), introduced] if self._remote else [introduced]

    def _peer_down(self, command: commands.PeerDown, now_ns: int) -> list[Act]:
        if self.serving:
            self._peers[command.task] = ("", command.incarnation)
            self._peers_due_ns = 0
        return self._feed(PeerDown(self._index(command.task), command.incarnation))

    def _echo(self, command: commands.Echo, now_ns: int) -> list[Act]:
        if not self.serving or command.endpoint == self._hot_standby:
            return []
        self._hot_standby = command.endpoint
        if not command.endpoint:
            return [Feed(HotStandbyDown())]
        return [Dial(HOT_STANDBY, command.endpoint), Feed(HotStandbyUp())]

    def _checkpoint(self, command: commands.Checkpoint, now_ns: int) -> list[Act]:
        return self._feed(CheckpointRequested(command.epoch, command.final, command.hold))

    def _inspect(self, command: commands.Inspect, now_ns: int) -> list[Act]:
        if self.serving:
            self._questions += 1
            self._asking[self._questions] = command.to
            while len(self._asking) > QUESTIONS_MAX:
                del self._asking[next(iter(self._asking))]  # the process that asked will ask again
        return self._feed(StateQuery(self._questions, command.operator, command.key))

    def _completed(self, command: commands.Completed, now_ns: int) -> list[Act]:
        return self._feed(CheckpointCompleted(command.epoch))

    def _inquire(self, command: commands.Inquire, now_ns: int) -> list[Act]:
        return self._feed(OrphanQuery(command.number, list(command.lost)))

    def _keep(self, command: commands.Keep, now_ns: int) -> list[Act]:
        self.beat_due_ns = 0
        return self._feed(InquiryResolved(read_rollback(command.rollback)))

    def _stop(self, command: commands.Stop, now_ns: int) -> list[Act]:
        ended = self._feed(JobEnded()) if command.finished else []
        return [*ended, *self._beat(now_ns), End()]

    def _feed(self, event: Event) -> list[Act]:
        return [Feed(event)] if self.serving else []

    def _index(self, name: str) -> int:
        task = self._topology.named(name)
        if task is None:
            raise PipelineError(f"the supervisor named task {name!r}, which this pipeline does not have")
        return task.index


_COMMANDS: dict[type[AnyCommand], Callable[[Membership, Any, int], list[Act]]] = {
    commands.Follow: Membership._follow,
    commands.Promote: Membership._promote,
    commands.Peer: Membership._peer,
    commands.PeerDown: Membership._peer_down,
    commands.Echo: Membership._echo,
    commands.Checkpoint: Membership._checkpoint,
    commands.Completed: Membership._completed,
    commands.Inspect: Membership._inspect,
    commands.Inquire: Membership._inquire,
    commands.Keep: Membership._keep,
    commands.Stop: Membership._stop,
}
