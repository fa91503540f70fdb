"""The next version of a job, whose processes start and load their state while the current version works (0040).

A command drives the change with requests that it may repeat, and renews it every second.  Each step is a decision, so
the next supervisor continues the change, or ends it once the command has been silent for `LEASE_NS`.  Until the change
is committed, its end leaves the job as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from causal import commands
from causal.commands import Files
from causal.errors import invariant
from standby.blueprint import Constraint
from standby.supervision import events
from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Answer, CommitChange, KillProcess, Note, Outbox, Record, StartProcess
from standby.supervision.file_lists import as_files
from standby.supervision.hosts import LOCAL
from standby.supervision.moves import REQUESTED, Kill
from standby.supervision.orders import NEXT_WORKER
from standby.supervision.placement import ANYWHERE, Placement
from standby.supervision.staging import Staging
from standby.supervision.transitions import following

LEASE_NS = 5_000_000_000
"""The silence of the command after which the change ends."""

FAILED_STARTS_MAX = 3
"""The number of processes that may end before they are idle; then the change ends."""

AGAIN_NS = 300_000_000
"""The time that a process has to load a state before the command is repeated."""

FACTS, PREPARE, FOLLOW, STAND, WITHDRAW, COMMIT, RENEW, CANCEL = (
    "facts", "prepare", "follow", "stand", "withdraw", "commit", "renew", "cancel",
)  # fmt: skip
"""The steps that a command requests, in their order; the last two are possible at any time."""


class Phase(Enum):
    """The steps of a change that have been decided."""

    NONE = "none"  # there is no change
    PREPARING = "preparing"  # the processes of the next version start and load
    ENDING = "ending"  # the current version ends at a final savepoint, or its processes are killed
    RETURNING = "returning"  # the change has ended, but the current version has yet to reach its final savepoint
    WITHDRAWING = "withdrawing"  # rows are being withdrawn, so that only the next version can continue


_P = Phase
TABLE: dict[tuple[Phase, str], Phase] = {
    (_P.NONE, "prepare"): _P.PREPARING,
    (_P.PREPARING, "end"): _P.ENDING,
    (_P.PREPARING, "over"): _P.NONE,
    (_P.ENDING, "withdraw"): _P.WITHDRAWING,
    (_P.ENDING, "return"): _P.RETURNING,
    (_P.ENDING, "over"): _P.NONE,  # the job ends for another reason
    (_P.RETURNING, "over"): _P.NONE,
    (_P.WITHDRAWING, "over"): _P.NONE,
}


_SHOWN = {
    Phase.PREPARING: "its processes start and load the state",
    Phase.ENDING: "the current version ends",
    Phase.RETURNING: "this was given up, and the current version continues",
    Phase.WITHDRAWING: "rows are withdrawn",
}


@dataclass(slots=True)
class _Request:
    """A request that is answered once its condition is met."""

    sender: str
    step: str
    number: int
    """The number that the answer repeats, because a client may receive the answers of earlier requests late."""

    def refused(self, why: str) -> Answer:
        """Return the answer that the request is refused."""
        return Answer(self.sender, {"kind": "answer", "ok": False, "error": why, "request": self.number})


@dataclass(slots=True)
class _Process:
    """A process of the next version."""

    entry: WorkerEntry
    beat: events.Beat | None = None
    commanded_ns: int = 0

    @property
    def idle(self) -> bool:
        return self.beat is not None


@dataclass(slots=True)
class _First:
    """The first snapshots of the next version."""

    epoch: int = 0
    files: Mapping[str, Files] = field(default_factory=dict)


class NextVersion:
    """The change that is under way, if there is one.

    Args:
        placement: the choice of hosts for its processes.
        refusal: a function that returns why the job cannot change; empty if it can.
        kill: a function that kills a process and journals the reason.
        stop: a function that ends the job, because only the rollback can continue it.
    """

    def __init__(
        self,
        assignments: Assignments,
        coordinator: Coordinator,
        staging: Staging,
        placement: Placement,
        refusal: Callable[[], str],
        kill: Kill,
        stop: Callable[[str], None],
    ) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        self._staging = staging
        self._placement = placement
        placement.next_version = self.entries
        self._refusal = refusal
        self._kill = kill
        self._stop = stop
        self.phase = Phase.NONE
        self.rollback = ""
        """The savepoint to which the job is rolled back; empty for an upgrade."""
        self._owner = ""
        """The token of the command that drives the change."""
        self._incarnation = 0
        """The first incarnation of the next version, which is higher than any that the current one may use."""
        self._heard_ns = 0
        self._began: Record = {}
        """The decision with which the current version began, if it began at a savepoint."""
        self._tasks: dict[str, Constraint] = {}
        """The tasks of the next version, and where they may run."""
        self._processes: dict[str, _Process] = {}
        self._failed_starts = 0
        self._first = _First()
        self._request: _Request | None = None

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern a change has no effect."""
        if record["kind"] == "changed":
            self._began = record
        elif record["kind"] == "resumed":  # all processes have ended, those of the next version included
            self.phase, self._owner, self._processes, self._first = Phase.NONE, "", {}, _First()
        elif record["kind"] == "change":
            self.phase = following(TABLE, self.phase, record["step"], "change")
            if record["step"] == "prepare":
                places = {task: Constraint(*place) for task, place in record.get("places", {}).items()}
                self._tasks = {task: places.get(task, ANYWHERE) for task in record["tasks"]}
                self.rollback, self._owner, self._incarnation = (
                    record["rollback"],
                    record["owner"],
                    record["incarnation"],
                )
            elif record["step"] in ("return", "over"):
                self._owner, self._processes, self._request, self._first = "", {}, None, _First()
                self._failed_starts = 0
        elif record["kind"] == "next_process":
            entry = WorkerEntry(record["slot"], record["purpose"], host=record.get("host", LOCAL))
            self._processes[entry.name] = _Process(entry)
        elif record["kind"] == "next_gone":
            self._processes.pop(record["slot"], None)

    @property
    def ends_current(self) -> bool:
        """Whether the current version is ending for a change, so that its final savepoint does not end the job."""
        return self.phase in (Phase.ENDING, Phase.RETURNING, Phase.WITHDRAWING)

    @property
    def suspends(self) -> bool:
        """Whether no task of the current version may be promoted: its rows are to be withdrawn, or it has reached the
        final savepoint, after which a promoted task would perform more.
        """
        if self.rollback:
            return self.phase in (Phase.ENDING, Phase.WITHDRAWING)
        return self.phase is Phase.ENDING and self._coordinator.ends

    @property
    def shown(self) -> str:
        """The description of the change for people; empty if there is none."""
        if self.phase is Phase.NONE:
            return ""
        doing = f"rolled back to savepoint {self.rollback}" if self.rollback else "replaced by its next version"
        return f"the job is being {doing}: {_SHOWN[self.phase]}"

    # Requests.

    def asked(self, event: events.Admin, now_ns: int, outbox: Outbox) -> None:
        """Carry out a request, and answer it now or once its condition is met."""
        facts = event.arguments
        step, token = str(facts.get("step")), str(facts.get("change"))
        request = _Request(event.sender, step, int(facts.get("request", 0)))
        problem = self._problem(step, token)
        if problem:
            outbox.add(request.refused(problem))
            return
        self._heard_ns = now_ns
        if step == PREPARE and self.phase is Phase.NONE:
            tasks, incarnation = [str(task) for task in facts["tasks"]], int(facts["incarnation"])
            places = {str(task): [str(place[0]), dict(place[1])] for task, place in facts.get("places", {}).items()}
            what = {"tasks": tasks, "rollback": str(facts["rollback"]), **({"places": places} if places else {})}
            outbox.decide("change", step="prepare", **what, owner=token, incarnation=incarnation)
        elif step == FOLLOW:
            self._first = _First(int(facts["epoch"]), as_files(facts["files"]))
        elif step == STAND and self.phase is Phase.PREPARING:
            outbox.decide("change", step="end", incarnation=self._incarnation)
            if not self.rollback:
                self._coordinator.request(True, outbox)
        elif step == WITHDRAW and self.phase is Phase.ENDING:
            outbox.decide("change", step="withdraw")
        elif step == CANCEL:
            self.end("it was cancelled", now_ns, outbox)
        if step == COMMIT:
            self._commit(request, outbox)
        elif step in (FACTS, RENEW, CANCEL):
            self._reply(request, outbox)
        else:
            self._request = request

    def _problem(self, step: str, token: str) -> str:
        """Return why a request is refused; empty if it is not."""
        if step in (FACTS, PREPARE) and self.phase is Phase.NONE:
            return self._refusal()
        if self.phase in (Phase.NONE, Phase.RETURNING):
            return "the change has ended; see logs/supervisor.log"
        if token != self._owner:
            return "another change of this job is under way; wait for its end"
        allowed = {
            PREPARE: True,
            RENEW: True,
            FOLLOW: self.phase is Phase.PREPARING,
            STAND: self.phase in (Phase.PREPARING, Phase.ENDING),
            WITHDRAW: bool(self.rollback) and self.phase in (Phase.ENDING, Phase.WITHDRAWING) and self._stands,
            COMMIT: self._stands and self.phase is (Phase.WITHDRAWING if self.rollback else Phase.ENDING),
            CANCEL: self.phase is not Phase.WITHDRAWING,
        }.get(step, False)
        if not allowed:
            return f"a change cannot {step} while it is {self.phase.value}"
        return self._refusal() if step == COMMIT else ""

    def _commit(self, request: _Request, outbox: Outbox) -> None:
        """Make the prepared change final.  The next version begins with the processes that have started for it."""
        records: list[Record] = []
        for process in self._processes.values():
            slot = process.entry
            number = int(slot.name.removeprefix("w"))
            where = {"host": slot.host} if slot.host else {}
            records.append({"kind": "process", "slot": slot.name, "number": number, "purpose": slot.purpose, **where})
        outbox.add(CommitChange(tuple(records), self._assignments.started_max, request.sender, request.number))

    @property
    def beats(self) -> list[events.Beat]:
        """The last beats of its processes, which report to the supervisor of the next version the state they have.

        The processes would repeat them only after a rest.
        """
        return [process.beat for process in self._processes.values() if process.beat is not None]

    # What its processes report.

    def entries(self) -> list[WorkerEntry]:
        """Return the processes of the next version."""
        return [process.entry for process in self._processes.values()]

    def knows(self, slot: str, host: str | None = None) -> bool:
        """Return whether a process belongs to the next version, and was placed on this host if one is stated."""
        process = self._processes.get(slot)
        return process is not None and host in (None, process.entry.host)

    def host_of(self, slot: str) -> str | None:
        """Return the host of a process of the next version; None for any other process."""
        process = self._processes.get(slot)
        return None if process is None else process.entry.host

    def beat(self, event: events.Beat) -> None:
        """Record the beat of a process."""
        process = self._processes[event.slot]
        process.beat = event
        if process.entry.state is WorkerState.STARTING:
            process.entry.step("beat without task")

    def gone(self, slot: str, last_line: str, now_ns: int, outbox: Outbox) -> None:
        """Record the end of a process; another one is started instead, or the change ends."""
        process = self._processes[slot]
        outbox.decide("next_gone", slot=slot)
        outbox.add(Note(f"{slot}, which was to run {process.entry.purpose} of the next version, has ended"))
        self._failed_starts += not process.idle
        if self._failed_starts >= FAILED_STARTS_MAX:
            self.end(
                f"{process.entry.purpose} cannot start: {last_line or 'see logs/' + slot + '.log'}", now_ns, outbox
            )

    def lost(self, host: str, outbox: Outbox) -> None:
        """Record the ends of the processes on a lost host; others are started instead where there is room."""
        for name, process in list(self._processes.items()):
            if process.entry.host == host:
                outbox.decide("next_gone", slot=name)

    def reported(self, slots: Collection[str], host: str, now_ns: int, outbox: Outbox) -> None:
        """Compare the processes with those that a host's agent reports, and order those again that it does not know."""
        for name, process in self._processes.items():
            entry = process.entry
            if entry.host == host and name not in slots and not process.idle and now_ns - entry.asked_ns >= AGAIN_NS:
                entry.asked_ns = now_ns
                outbox.add(StartProcess(name, NEXT_WORKER, host))

    # Work that is due after every event.

    def settle(self, now_ns: int, outbox: Outbox) -> None:
        """Start missing processes, make them load the first snapshots, and answer what can be answered now."""
        if self.phase is Phase.RETURNING:
            self._return(now_ns, outbox)
        if self.phase in (Phase.NONE, Phase.RETURNING):
            return
        self._heard_ns = self._heard_ns or now_ns
        if now_ns - self._heard_ns >= LEASE_NS:
            self.end(f"its command has been silent for {LEASE_NS // 10**9} s", now_ns, outbox)
            return
        if not self._start_missing(now_ns, outbox):
            return
        for process in self._processes.values():
            self._follow(process, now_ns, outbox)
        if self.rollback and self.suspends:
            for slot in list(self._assignments.slots.values()):
                if slot.state is not WorkerState.LEAVING:
                    self._kill(slot, REQUESTED, now_ns, outbox)
        self._answer(outbox)

    def _start_missing(self, now_ns: int, outbox: Outbox) -> bool:
        """Start the processes that the next version lacks; return False if the change ends because there is no room.

        Once the current version ends, the next one may begin without some of its processes.
        """
        served = {process.entry.purpose for process in self._processes.values()}
        for task, constraint in self._tasks.items():
            if task in served:
                continue
            host = self._placement.host_for_next(constraint)
            if host is not None:
                self._start(task, host, now_ns, outbox)
            elif self.phase is Phase.PREPARING:
                room = f"both versions need room, {len(self._tasks)} more processes in all"
                self.end(f"no host has room for {task} of the next version ({room}); add a host", now_ns, outbox)
                return False
        return True

    def _start(self, task: str, host: str, now_ns: int, outbox: Outbox) -> None:
        number = self._assignments.started_max + 1
        name = f"w{number}"
        where = {"host": host} if host else {}
        outbox.decide("next_process", slot=name, number=number, purpose=task, **where)
        self._processes[name].entry.asked_ns = now_ns
        outbox.add(StartProcess(name, NEXT_WORKER, host))

    def _follow(self, process: _Process, now_ns: int, outbox: Outbox) -> None:
        first, files = self._first, self._first.files.get(process.entry.purpose)
        if files is None or process.beat is None or process.beat.followed == first.epoch:
            return
        if now_ns - process.commanded_ns >= AGAIN_NS:
            process.commanded_ns = now_ns
            outbox.send(process.entry.name, commands.Follow(process.entry.purpose, first.epoch, files))

    def _answer(self, outbox: Outbox) -> None:
        request = self._request
        if request is None or not self._done(request.step):
            return
        self._request = None
        self._reply(request, outbox)

    def _reply(self, request: _Request, outbox: Outbox) -> None:
        incarnation = max((entry.incarnation for entry in self._assignments.tasks.values()), default=0)
        facts = {"epoch": self._coordinator.complete, "incarnation": incarnation}
        began = {"savepoint": self._began.get("savepoint", ""), "left": dict(self._began.get("left", {}))}
        which = {"step": request.step, "request": request.number}
        outbox.add(Answer(request.sender, {"kind": "answer", "ok": True, **which, **facts, **began}))

    def _done(self, step: str) -> bool:
        """Return whether the condition of a request is met."""
        if step == STAND:
            return self._stands
        if step == WITHDRAW:
            return True
        ready = len(self._processes) == len(self._tasks) and all(each.idle for each in self._processes.values())
        if step == FOLLOW:
            beats = (process.beat for process in self._processes.values())
            return ready and all(beat is not None and beat.followed == self._first.epoch for beat in beats)
        return ready

    @property
    def _stands(self) -> bool:
        """Whether the current version performs nothing any more, and all its rows are visible or can be withdrawn."""
        if self.rollback:
            return self.phase in (Phase.ENDING, Phase.WITHDRAWING) and not self._assignments.slots
        return self._coordinator.ends and self._staging.shown(self._coordinator.final)

    # The end of a change that is not committed.

    def end(self, why: str, now_ns: int, outbox: Outbox) -> None:
        """End the change and kill the processes of the next version; the current version works, or works again."""
        invariant(self.phase is not Phase.NONE, "a change is under way")
        outbox.add(Note(f"the change ends: {why}"))
        request = self._request
        if request is not None:
            outbox.add(request.refused(why))
        for process in self._processes.values():
            outbox.add(KillProcess(process.entry.name, process.entry.host))
        before = self.phase
        if before is Phase.ENDING:
            outbox.decide("change", step="return")
            self._return(now_ns, outbox)
            return
        outbox.decide("change", step="over")
        if before is Phase.WITHDRAWING:
            self._stop(f"{why}, after it had begun to withdraw rows; complete the rollback with --resume --rollback")

    def abandon(self, outbox: Outbox) -> None:
        """End the change because the job ends."""
        if self.phase is Phase.NONE:
            return
        if self._request is not None:
            outbox.add(self._request.refused("the job is ending already"))
        outbox.decide("change", step="over")

    def _return(self, now_ns: int, outbox: Outbox) -> None:
        """Make the current version continue from its final savepoint, once it has reached it."""
        if self.phase is not Phase.RETURNING:
            return
        if self._coordinator.final > self._coordinator.complete or self._coordinator.writing:
            return
        stood = bool(self._coordinator.final)
        outbox.decide("change", step="over")
        for slot in list(self._assignments.slots.values()) if stood else ():
            if slot.state in (WorkerState.SERVING, WorkerState.ASSIGNED):
                self._kill(slot, REQUESTED, now_ns, outbox)

    def deadline_ns(self) -> int | None:
        """Return when `settle` must be called even if no event occurs; None if it need not be called."""
        if self.phase in (Phase.NONE, Phase.RETURNING):
            return None
        return self._heard_ns + LEASE_NS
