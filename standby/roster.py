"""Who runs what: the slots (processes) and the seats (tasks) of a job, each a small state machine.

The tables are the machines; a pair that is not in them is a bug of ours and stops the supervisor.
`Roster.apply` is the only way in which decisions change it, live and after a restart alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from causal.activity import Activity
from causal.errors import invariant
from causal.topology import Topology
from standby.effects import Record


class SlotState(Enum):
    """What a worker process is to the supervisor."""

    STARTING = "starting"  # asked for; no beat yet
    IDLE = "idle"  # beats, has no task: a standby
    ASSIGNED = "assigned"  # has been given a task; no beat has confirmed it yet
    SERVING = "serving"  # beats with its task
    LEAVING = "leaving"  # to be killed; its exit is awaited
    GONE = "gone"  # the process has ended


_S = SlotState
SLOT_TABLE: dict[tuple[SlotState, str], SlotState] = {
    (_S.STARTING, "beat without task"): _S.IDLE,
    (_S.STARTING, "kill"): _S.LEAVING,
    (_S.STARTING, "exit"): _S.GONE,
    (_S.IDLE, "beat without task"): _S.IDLE,
    (_S.IDLE, "assign"): _S.ASSIGNED,
    (_S.IDLE, "kill"): _S.LEAVING,
    (_S.IDLE, "exit"): _S.GONE,
    (_S.STARTING, "assign"): _S.ASSIGNED,  # only from the journal: the beats that made it idle are not in it
    (_S.ASSIGNED, "beat without task"): _S.ASSIGNED,
    (_S.ASSIGNED, "beat with task"): _S.SERVING,
    (_S.ASSIGNED, "kill"): _S.LEAVING,
    (_S.ASSIGNED, "exit"): _S.GONE,
    (_S.SERVING, "beat without task"): _S.ASSIGNED,
    (_S.SERVING, "beat with task"): _S.SERVING,
    (_S.SERVING, "roll back"): _S.ASSIGNED,
    (_S.ASSIGNED, "roll back"): _S.ASSIGNED,  # only from the journal: the beats that confirmed it are not in it
    (_S.SERVING, "kill"): _S.LEAVING,
    (_S.SERVING, "exit"): _S.GONE,
    (_S.LEAVING, "beat without task"): _S.LEAVING,
    (_S.LEAVING, "beat with task"): _S.LEAVING,
    (_S.LEAVING, "kill"): _S.LEAVING,
    (_S.LEAVING, "exit"): _S.GONE,
}


class SeatState(Enum):
    """Whether a task has a process."""

    WAITING = "waiting"  # no process: the next idle slot that may serve it gets it
    PROMOTED = "promoted"  # a slot was told to be this task
    SERVED = "served"  # that slot has confirmed it


_T = SeatState
SEAT_TABLE: dict[tuple[SeatState, str], SeatState] = {
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
class Slot:
    """One worker process, from the decision to start it until it has ended."""

    name: str
    purpose: str
    """The task it is a standby of; empty: it may become any task (a shared pool)."""
    state: SlotState = SlotState.STARTING
    task: str = ""
    incarnation: int = 0
    pid: int = 0
    endpoint: str = ""
    word: str = ""
    """The worker's own word for its state."""
    complaint: str = ""
    """Why it cannot go on, as it said itself."""
    epoch: int = 0
    committed: int = 0
    """Rows of epochs below it are visible, of a sink whose rows are staged."""
    wanted_epoch: int = 0
    """The checkpoint that should complete now, because its task keeps so much until then; 0 for none."""
    followed: int | None = None
    seen_ns: int = 0
    """Last beat in this supervisor's life; 0 for none."""
    alive_ns: int = 0
    """Last beat or pulse in this supervisor's life; 0 for none."""
    computed_ns: int = 0
    """When the agent last saw its process use the processor, in this supervisor's life; 0 for never."""
    doing: Activity | None = None
    """What it has worked on for a while."""
    line_after_ns: int = 0
    """How long its work must last before the next line about it is logged; 0 for the default."""
    known_ns: int = 0
    """When this supervisor learnt that it should exist."""
    asked_ns: int = 0
    """When this supervisor last asked the agent to start it; 0 for never."""
    ready_ns: int = 0
    """When it became idle: a standby from there on."""
    commanded_ns: int = 0
    """When it was last sent `promote` or `follow`."""
    following: tuple[str, int] | None = None
    """(task, epoch) of the last `follow` sent."""
    triggered: tuple[int, int] = (0, 0)
    """(epoch, when) of the last `checkpoint` sent."""
    held_epoch: int = 0
    """Until that checkpoint is complete its source was told to hold back records; 0 for never."""
    rollback: int = 0
    """Number of the last decision about lost determinants that it has acted on, as it says itself."""
    asked_about: tuple[int, int] = (0, 0)
    """(decision, question) that it was last told of, and when."""
    asked_about_ns: int = 0
    peers_told: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What it was last told of each neighbour; an empty endpoint means `peer_down`."""
    peers_told_ns: int = 0
    """When."""
    peers_known: Mapping[str, int] = field(default_factory=dict)
    """What of it arrived, as its beats say: the incarnation of each neighbour, negative for `peer_down`."""
    waiting: tuple[int, str] | None = None
    """Since when its task waits for its store, and why."""

    def told(self, rollback: int, peers: Mapping[str, int] | None, waiting: tuple[int, str] | None) -> None:
        """What a beat with a task says of itself; None for neighbours of which there is nothing new."""
        self.rollback, self.waiting = rollback, waiting
        self.peers_known = self.peers_known if peers is None else peers

    def step(self, trigger: str) -> None:
        """Take the transition, which must be in the table."""
        following = SLOT_TABLE.get((self.state, trigger))
        invariant(following is not None, "no such transition of a slot", slot=self.name, state=self.state, on=trigger)
        if following is not None:
            self.state = following

    @property
    def living(self) -> bool:
        return self.state is not SlotState.GONE


@dataclass(slots=True)
class Seat:
    """One task and the process that holds it."""

    name: str
    source: bool
    sink: bool
    neighbours: tuple[str, ...]
    upstream: tuple[str, ...]
    state: SeatState = SeatState.WAITING
    incarnation: int = 0
    slot: str = ""
    failures: int = 0
    """In a row, none of them followed by a complete checkpoint; kills on request do not count."""
    finished: bool = False

    def step(self, trigger: str) -> None:
        """Take the transition, which must be in the table."""
        following = SEAT_TABLE.get((self.state, trigger))
        invariant(following is not None, "no such transition of a task", task=self.name, state=self.state, on=trigger)
        if following is not None:
            self.state = following


class Roster:
    """All slots and seats of a job."""

    def __init__(self, topology: Topology) -> None:
        self.seats: dict[str, Seat] = {}
        self.slots: dict[str, Slot] = {}
        self.started_max = 0
        self.up = False
        """Every task has had a process at least once."""
        self.unserved: dict[str, dict[str, Slot]] = {}
        """By purpose: the slots that start or are idle, the longest-serving first."""
        self.short: dict[str, None] = {}
        """Tasks for which nobody starts or is idle."""
        self._waiting: dict[str, None] = {}
        self._unmanned: dict[str, None] = {}
        self._unconfirmed: dict[str, None] = {}
        self._never: dict[str, None] = {}
        for task in topology.tasks:
            upstream = tuple(topology.tasks[i].name for i in topology.upstream(task.index))
            downstream = tuple(topology.tasks[i].name for i in topology.downstream(task.index))
            self.seats[task.name] = Seat(
                task.name, topology.is_source(task.index), topology.is_sink(task.index), upstream + downstream, upstream
            )
        self.sources = tuple(seat for seat in self.seats.values() if seat.source)
        for table in (self._never, self._waiting, self._unmanned, self.short):
            table.update(dict.fromkeys(self.seats))

    def apply(self, record: Record) -> None:
        """Change by one decision; kinds that do not concern it are left alone."""
        act = {
            "process": self._process,
            "promoted": self._promoted,
            "rolled_back": self._rolled_back,
            "killing": self._killing,
            "gone": self._gone,
            "checkpoint": self._checkpoint,
            "phase": self._phase,
            "resumed": self._resumed,
            "changed": self._changed,
        }.get(record["kind"])
        if act is not None:
            act(record)

    def _process(self, record: Record) -> None:
        self.started_max = max(self.started_max, record["number"])
        slot = self.slots[record["slot"]] = Slot(record["slot"], record["purpose"])
        self.unserved.setdefault(slot.purpose, {})[slot.name] = slot
        self._manned(slot.purpose)

    def _promoted(self, record: Record) -> None:
        slot, seat = self.slots[record["slot"]], self.seats[record["task"]]
        invariant(record["incarnation"] > seat.incarnation, "incarnations rise", task=seat.name)
        slot.step("assign")
        self.step(seat, "assign")
        self._taken(slot)
        slot.task, slot.incarnation = seat.name, record["incarnation"]
        slot.following, slot.commanded_ns = None, 0
        slot.peers_told.clear()
        seat.slot, seat.incarnation = slot.name, record["incarnation"]
        self._never.pop(seat.name, None)
        self.up = self.up or not self._never

    def _rolled_back(self, record: Record) -> None:
        for name, incarnation in record["tasks"].items():
            seat = self.seats[name]
            slot = self.slots[seat.slot]
            slot.step("roll back")
            self.step(seat, "roll back")
            slot.incarnation = seat.incarnation = incarnation
            slot.commanded_ns = 0
            slot.peers_told.clear()
            seat.finished = False

    def _killing(self, record: Record) -> None:
        slot = self.slots[record["slot"]]
        slot.step("kill")
        self._taken(slot)

    def _gone(self, record: Record) -> None:
        slot = self.slots[record["slot"]]
        slot.step("exit")
        self._taken(slot)
        seat = self.seats.get(record["task"] or slot.purpose)
        if seat is not None and record["failure"]:
            seat.failures += 1
        if record["task"] and seat is not None:
            self.step(seat, "lose")
            seat.slot = ""
        del self.slots[slot.name]

    def _checkpoint(self, record: Record) -> None:
        for seat in self.seats.values():
            seat.failures = 0

    def _phase(self, record: Record) -> None:
        if record["phase"] == "finished":
            self.seats[record["task"]].finished = True

    def _changed(self, record: Record) -> None:
        # The job began anew from a savepoint: its incarnations are above all that there were.
        for name in self.seats:
            self.seats[name].incarnation = record["incarnation"]

    def _resumed(self, record: Record) -> None:
        # Every process of the job has died, and with the last of them all that a slot stood for.
        self.slots.clear()
        self.unserved.clear()
        self._unconfirmed.clear()
        self.up = False
        for table in (self._waiting, self._unmanned, self.short):
            table.clear()
            table.update(dict.fromkeys(self.seats))
        for seat in self.seats.values():
            seat.state, seat.slot, seat.failures, seat.finished = SeatState.WAITING, "", 0, False

    def step(self, seat: Seat, trigger: str) -> None:
        """Take the transition of a seat, and keep the tables that follow from it."""
        seat.step(trigger)
        for table, state in ((self._waiting, SeatState.WAITING), (self._unconfirmed, SeatState.PROMOTED)):
            if seat.state is state:
                table[seat.name] = None
            else:
                table.pop(seat.name, None)
        self._manned(seat.name)

    def _taken(self, slot: Slot) -> None:
        """It starts or idles no longer."""
        self.unserved.get(slot.purpose, {}).pop(slot.name, None)
        self._manned(slot.purpose)

    def _manned(self, purpose: str) -> None:
        if purpose not in self.seats:
            return
        lacks = not self.unserved.get(purpose)
        for table, holds in ((self.short, lacks), (self._unmanned, lacks and purpose in self._waiting)):
            if holds:
                table[purpose] = None
            else:
                table.pop(purpose, None)

    def idle(self, purpose: str) -> Slot | None:
        """The longest-serving standby of that purpose that can be promoted now."""
        for slot in self.unserved.get(purpose, {}).values():
            if slot.state is SlotState.IDLE and slot.seen_ns:
                return slot
        return None

    def waiting(self) -> list[Seat]:
        """Tasks without a process, the one that lost its own first in front."""
        return [self.seats[name] for name in self._waiting]

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def deserted(self) -> bool:
        """No task has a process."""
        return len(self._waiting) == len(self.seats)

    def unmanned(self) -> list[str]:
        """Tasks without a process for which none starts or is idle."""
        return list(self._unmanned)

    @property
    def confirmed(self) -> bool:
        """No task has been given to a process that has not said so yet."""
        return not self._unconfirmed

    def holder(self, seat: Seat) -> Slot | None:
        """The slot that was given the task, if its process lives."""
        return self.slots.get(seat.slot) if seat.slot else None

    def seat_of(self, slot: Slot) -> Seat | None:
        """The task of which this slot is the present holder."""
        seat = self.seats.get(slot.task) if slot.task else None
        return seat if seat is not None and seat.slot == slot.name else None
