"""The slots (processes) and tasks of a job, and which slot runs which task, modelled as small state machines.

Two tables define the state machines.  A pair of state and trigger that is missing from its table is a bug and stops the
supervisor.  Decisions change slots and tasks only through `Assignments.apply`, both in live operation and after a
restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from causal.errors import invariant
from causal.task.activity import Activity, sentence
from causal.task.vitals import Vitals
from causal.topology import Topology
from standby.supervision.effects import Record
from standby.supervision.transitions import following

LINE_NS = 5_000_000_000
"""The time after which work is logged for the first time."""


class WorkerState(Enum):
    """The state of a worker process, as the supervisor knows it."""

    STARTING = "starting"  # its start was ordered, but no beat has arrived yet
    IDLE = "idle"  # it beats and has no task, so it is a standby
    ASSIGNED = "assigned"  # it was assigned a task, but no beat has confirmed this yet
    SERVING = "serving"  # it beats and confirms its task
    LEAVING = "leaving"  # a kill was decided, and its exit is awaited
    GONE = "gone"  # the process has ended


_S = WorkerState
SLOT_TABLE: dict[tuple[WorkerState, str], WorkerState] = {
    (_S.STARTING, "beat without task"): _S.IDLE,
    (_S.STARTING, "kill"): _S.LEAVING,
    (_S.STARTING, "exit"): _S.GONE,
    (_S.IDLE, "beat without task"): _S.IDLE,
    (_S.IDLE, "assign"): _S.ASSIGNED,
    (_S.IDLE, "kill"): _S.LEAVING,
    (_S.IDLE, "exit"): _S.GONE,
    (_S.STARTING, "assign"): _S.ASSIGNED,  # only from the journal, which omits the beats that made the slot idle
    (_S.ASSIGNED, "beat without task"): _S.ASSIGNED,
    (_S.ASSIGNED, "beat with task"): _S.SERVING,
    (_S.ASSIGNED, "kill"): _S.LEAVING,
    (_S.ASSIGNED, "exit"): _S.GONE,
    (_S.SERVING, "beat without task"): _S.ASSIGNED,
    (_S.SERVING, "beat with task"): _S.SERVING,
    (_S.SERVING, "roll back"): _S.ASSIGNED,
    # Only from the journal, which omits the beats that confirmed the task.
    (_S.ASSIGNED, "roll back"): _S.ASSIGNED,
    (_S.SERVING, "kill"): _S.LEAVING,
    (_S.SERVING, "exit"): _S.GONE,
    (_S.LEAVING, "beat without task"): _S.LEAVING,
    (_S.LEAVING, "beat with task"): _S.LEAVING,
    (_S.LEAVING, "kill"): _S.LEAVING,
    (_S.LEAVING, "exit"): _S.GONE,
}


class TaskState(Enum):
    """Whether a task has a process, and whether that process has confirmed the task."""

    WAITING = "waiting"  # no process; the next suitable idle slot will be promoted
    PROMOTED = "promoted"  # a slot was promoted to run this task
    SERVED = "served"  # that slot has confirmed the promotion


_T = TaskState
SEAT_TABLE: dict[tuple[TaskState, str], TaskState] = {
    (_T.WAITING, "assign"): _T.PROMOTED,
    (_T.PROMOTED, "confirm"): _T.SERVED,
    (_T.SERVED, "confirm"): _T.SERVED,
    (_T.SERVED, "doubt"): _T.PROMOTED,
    (_T.PROMOTED, "doubt"): _T.PROMOTED,
    (_T.SERVED, "roll back"): _T.PROMOTED,
    (_T.PROMOTED, "roll back"): _T.PROMOTED,
    (_T.PROMOTED, "lose"): _T.WAITING,
    (_T.SERVED, "lose"): _T.WAITING,
}


@dataclass(slots=True)
class WorkerEntry:
    """One worker process, from the decision to start it until it has ended."""

    name: str
    purpose: str
    """The task for which the worker is a standby; empty if it may run any task (a shared pool)."""
    state: WorkerState = WorkerState.STARTING
    host: str = ""
    """The host on which the worker was placed; empty on one machine."""
    task: str = ""
    incarnation: int = 0
    pid: int = 0
    endpoint: str = ""
    remote: str = ""
    """The endpoint for tasks on other hosts, `tcp://address:port`; empty on one machine."""
    reported_state: str = ""
    """The state that the worker itself reports."""
    complaint: str = ""
    """The error that prevents the worker from continuing, as the worker reported it."""
    epoch: int = 0
    committed: int = 0
    """The rows of all epochs below this one are visible; used for a sink that stages its rows."""
    wanted_epoch: int = 0
    """The epoch of a checkpoint that should complete soon, because until then the task retains much data; 0 for
    none."""
    unchanged: bool = False
    """Whether its task has not performed anything since barrier `epoch`."""
    input_complete: int = 0
    """The first barrier before which its task delivers all of its recorded input; 0 if that is not known."""
    followed: int | None = None
    seen_ns: int = 0
    """Time of the last beat that this supervisor received from it; 0 for none."""
    alive_ns: int = 0
    """Time of the last beat or pulse that this supervisor received from it; 0 for none."""
    computed_ns: int = 0
    """Time of the last report of the agent to this supervisor that the process uses the processor; 0 for never."""
    doing: Activity | None = None
    """The work that has kept it busy for a while."""
    line_after_ns: int = 0
    """The duration that its work must reach before the next line about the work is logged; 0 for the default."""
    known_ns: int = 0
    """Time at which this supervisor learnt of the process."""
    asked_ns: int = 0
    """Time at which this supervisor last ordered its start or its end; 0 for never."""
    ready_ns: int = 0
    """Time at which it became idle and thereby a standby."""
    commanded_ns: int = 0
    """Time at which the last `promote` or `follow` was sent to it."""
    following: tuple[str, int, int, tuple[tuple[str, tuple[str, int]], ...]] | None = None
    """The (task, epoch, incarnation, downstream neighbours) of the last `follow` that was sent."""
    triggered: tuple[int, int] = (0, 0)
    """The epoch of the last `checkpoint` that was sent, and when it was sent."""
    held_epoch: int = 0
    """The epoch of the last `checkpoint` command that made the source hold back records until completion; 0 for
    none."""
    rollback: int = 0
    """The number of the last decision about lost determinants that the worker reports to have carried out."""
    asked_about: tuple[int, int] = (0, 0)
    """The numbers of the (decision, question) that were last sent to it."""
    asked_about_ns: int = 0
    """Time at which `asked_about` was sent."""
    peers_sent: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The (endpoint, incarnation) last sent to it for each neighbour; an empty endpoint means that `peer_down` was
    sent."""
    peers_sent_ns: int = 0
    """Time at which an entry of `peers_sent` was last sent."""
    peers_known: Mapping[str, int] = field(default_factory=dict)
    """The incarnation of each neighbour, as its beats confirm it; negative after `peer_down`."""
    waiting: tuple[int, str] | None = None
    """The (start time, reason) of the wait while its task waits for the store; otherwise None."""
    vitals: Vitals = field(default_factory=Vitals)
    """The last beat that reported its present task, kept for values that are only displayed."""
    hot_standby: str = ""
    """The endpoint to which its task echoes, according to its beats."""
    echo_asked_ns: int = 0
    """Time at which a hot standby was last announced to it."""
    shadow: Mapping[str, int | str] = field(default_factory=dict)
    """The counters of the worker if it is a hot standby."""

    def endpoint_for(self, host: str) -> str:
        """Return the endpoint to which a task on that host connects; empty if none is known yet.

        The part before an `@` names the host that must answer there, which is the host on which the supervisor placed
        this process.
        """
        if host == self.host:
            return self.endpoint
        scheme, separator, address = self.remote.partition("://")
        return f"{scheme}{separator}{self.host}@{address}" if self.remote else ""

    def update(self, vitals: Vitals, peers: Mapping[str, int] | None) -> None:
        """Apply the report in the beat of a worker that has a task; `peers` is None if the neighbours are unchanged."""
        self.vitals, self.rollback, self.waiting = vitals, vitals.rollback, vitals.waiting
        self.peers_known = self.peers_known if peers is None else peers

    def work(self, doing: Activity | None, now_ns: int) -> str | None:
        """Store the work that the process reports; return a line to log if the work has lasted long enough.

        The first line is due after `LINE_NS`, and each later line is due once the work has lasted twice as long as at
        the line before.  A job in which every record takes a minute therefore logs a few lines, not one per record.
        """
        self.doing = doing
        if doing is None or now_ns - doing.since_ns < (self.line_after_ns or LINE_NS):
            return None
        self.line_after_ns = 2 * (now_ns - doing.since_ns)
        return f"{self.task or self.purpose or self.name}: {sentence(doing, now_ns)}"

    def step(self, trigger: str) -> None:
        """Perform the transition for the trigger, which the table must contain."""
        self.state = following(SLOT_TABLE, self.state, trigger, self.name)

    @property
    def living(self) -> bool:
        return self.state is not WorkerState.GONE


@dataclass(slots=True)
class TaskEntry:
    """One task and the process that runs it."""

    name: str
    source: bool
    sink: bool
    neighbours: tuple[str, ...]
    upstream: tuple[str, ...]
    state: TaskState = TaskState.WAITING
    incarnation: int = 0
    slot: str = ""
    host: str = ""
    """The host of the task's last process; empty on one machine."""
    failures: int = 0
    """The number of failures without two complete checkpoints between them; requested kills do not count."""
    survived: int = 0
    """The number of checkpoints that have completed since the task's process was promoted."""
    finished: bool = False

    def step(self, trigger: str) -> None:
        """Perform the transition for the trigger, which the table must contain."""
        self.state = following(SEAT_TABLE, self.state, trigger, self.name)


class Assignments:
    """All slots and tasks of a job."""

    def __init__(self, topology: Topology) -> None:
        self.tasks: dict[str, TaskEntry] = {}
        self.slots: dict[str, WorkerEntry] = {}
        self.started_max = 0
        self.up = False
        """Whether every task has had a process at least once."""
        self.unserved: dict[str, dict[str, WorkerEntry]] = {}
        """The slots of each purpose that are starting or idle, with the longest-serving first."""
        self.starved: dict[str, None] = {}
        """The tasks for which no process is starting or idle."""
        self._next_incarnation = 0
        """The first incarnation of the job's next version, while the current version ends for it; otherwise 0."""
        self._waiting: dict[str, None] = {}
        self._unmanned: dict[str, None] = {}
        self._unconfirmed: dict[str, None] = {}
        self._never: dict[str, None] = {}
        for task in topology.tasks:
            upstream = tuple(topology.tasks[i].name for i in topology.upstream(task.index))
            downstream = tuple(topology.tasks[i].name for i in topology.downstream(task.index))
            self.tasks[task.name] = TaskEntry(
                task.name, topology.is_source(task.index), topology.is_sink(task.index), upstream + downstream, upstream
            )
        self.sources = tuple(entry for entry in self.tasks.values() if entry.source)
        for table in (self._never, self._waiting, self._unmanned, self.starved):
            table.update(dict.fromkeys(self.tasks))

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that concerns neither slots nor tasks has no effect."""
        act = {
            "process": self._process,
            "next_process": self._next_process,
            "promoted": self._promoted,
            "rolled_back": self._rolled_back,
            "killing": self._killing,
            "gone": self._gone,
            "checkpoint": self._checkpoint,
            "phase": self._phase,
            "resumed": self._resumed,
            "changed": self._changed,
            "change": self._change,
        }.get(record["kind"])
        if act is not None:
            act(record)

    def _process(self, record: Record) -> None:
        self.started_max = max(self.started_max, record["number"])
        slot = self.slots[record["slot"]] = WorkerEntry(record["slot"], record["purpose"])
        slot.host = record.get("host", "")
        self.unserved.setdefault(slot.purpose, {})[slot.name] = slot
        self._manned(slot.purpose)

    def _next_process(self, record: Record) -> None:
        # The next version has the process; no process of the current version may have its name.
        self.started_max = max(self.started_max, record["number"])

    def _promoted(self, record: Record) -> None:
        slot, entry = self.slots[record["slot"]], self.tasks[record["task"]]
        invariant(record["incarnation"] > entry.incarnation, "incarnations rise", task=entry.name)
        slot.step("assign")
        self.step(entry, "assign")
        self._taken(slot)
        slot.task, slot.incarnation = entry.name, record["incarnation"]
        slot.following, slot.commanded_ns = None, 0
        slot.peers_sent.clear()
        entry.slot, entry.host, entry.incarnation = slot.name, slot.host, record["incarnation"]
        entry.survived = 0
        self._never.pop(entry.name, None)
        self.up = self.up or not self._never

    def _rolled_back(self, record: Record) -> None:
        for name, incarnation in record["tasks"].items():
            entry = self.tasks[name]
            slot = self.slots[entry.slot]
            slot.step("roll back")
            self.step(entry, "roll back")
            slot.incarnation = entry.incarnation = incarnation
            slot.commanded_ns = 0
            slot.peers_sent.clear()
            entry.finished = False

    def _killing(self, record: Record) -> None:
        slot = self.slots[record["slot"]]
        slot.step("kill")
        self._taken(slot)

    def _gone(self, record: Record) -> None:
        slot = self.slots[record["slot"]]
        slot.step("exit")
        self._taken(slot)
        entry = self.tasks.get(record["task"] or slot.purpose)
        if entry is not None and record["failure"]:
            entry.failures += 1
        if record["task"] and entry is not None:
            self.step(entry, "lose")
            entry.slot, entry.survived = "", 0
        del self.slots[slot.name]

    def _checkpoint(self, record: Record) -> None:
        for entry in self.tasks.values():
            entry.survived += entry.state is not TaskState.WAITING
            if entry.survived > 1:  # one checkpoint may complete before a process reaches the input that kills it
                entry.failures = 0

    def _phase(self, record: Record) -> None:
        if record["phase"] == "finished":
            self.tasks[record["task"]].finished = True

    def _changed(self, record: Record) -> None:
        # The job has restarted from a savepoint, so its incarnations must exceed all earlier ones.
        for name in self.tasks:
            self.tasks[name].incarnation = record["incarnation"]

    def _change(self, record: Record) -> None:
        if record["step"] == "end":
            self._next_incarnation = record["incarnation"]
        elif record["step"] == "over":
            self._raise()

    @property
    def incarnation_max(self) -> int:
        """The highest incarnation of a task, or of a next version that may have opened the stores."""
        return max(self._next_incarnation, *(entry.incarnation for entry in self.tasks.values()))

    def _raise(self) -> None:
        """Raise all incarnations above that of a next version which has not begun, but may have opened the stores."""
        for entry in self.tasks.values():
            entry.incarnation = max(entry.incarnation, self._next_incarnation)
        self._next_incarnation = 0

    def _resumed(self, record: Record) -> None:
        self._raise()
        # After a change, processes of the version before may still live, and the agent knows them by their names.
        self.started_max = max(self.started_max, record.get("started_max", 0))
        # All other processes of the job have ended, so no slot remains.
        self.slots.clear()
        self.unserved.clear()
        self._unconfirmed.clear()
        self.up = False
        for table in (self._waiting, self._unmanned, self.starved):
            table.clear()
            table.update(dict.fromkeys(self.tasks))
        for entry in self.tasks.values():
            entry.state, entry.slot, entry.failures, entry.finished = TaskState.WAITING, "", 0, False

    def step(self, entry: TaskEntry, trigger: str) -> None:
        """Perform the transition of an entry, and update the tables that depend on the entry's state."""
        entry.step(trigger)
        for table, state in ((self._waiting, TaskState.WAITING), (self._unconfirmed, TaskState.PROMOTED)):
            if entry.state is state:
                table[entry.name] = None
            else:
                table.pop(entry.name, None)
        self._manned(entry.name)

    def _taken(self, slot: WorkerEntry) -> None:
        """Remove a slot from the tables because it is no longer starting or idle."""
        self.unserved.get(slot.purpose, {}).pop(slot.name, None)
        self._manned(slot.purpose)

    def _manned(self, purpose: str) -> None:
        if purpose not in self.tasks:
            return
        lacks = not self.unserved.get(purpose)
        for table, holds in ((self.starved, lacks), (self._unmanned, lacks and purpose in self._waiting)):
            if holds:
                table[purpose] = None
            else:
                table.pop(purpose, None)

    def idle(self, purpose: str) -> WorkerEntry | None:
        """Return the longest-serving standby with that purpose that can be promoted now; None if there is none."""
        for slot in self.unserved.get(purpose, {}).values():
            if slot.state is WorkerState.IDLE and slot.seen_ns:
                return slot
        return None

    def waiting(self) -> list[TaskEntry]:
        """Return the tasks without a process, in the order in which they lost it."""
        return [self.tasks[name] for name in self._waiting]

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def deserted(self) -> bool:
        """Whether no task has a process."""
        return len(self._waiting) == len(self.tasks)

    def unmanned(self) -> list[str]:
        """Return the tasks that have no process and for which none is starting or idle."""
        return list(self._unmanned)

    @property
    def confirmed(self) -> bool:
        """Whether every promoted process has confirmed its task."""
        return not self._unconfirmed

    def holder(self, entry: TaskEntry) -> WorkerEntry | None:
        """Return the slot that runs the task; None if the task has no living process."""
        return self.slots.get(entry.slot) if entry.slot else None

    def entry_of(self, slot: WorkerEntry) -> TaskEntry | None:
        """Return the task that this slot currently runs; None if it runs none."""
        entry = self.tasks.get(slot.task) if slot.task else None
        return entry if entry is not None and entry.slot == slot.name else None
