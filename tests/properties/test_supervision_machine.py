"""The journal is the supervisor's whole memory: whatever happened, decisions applied live and after a restart agree.

Workers, agent, checkpoints, lost determinants, kills, restarts and resumptions come in any legal order.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from causal.logs.rollback import OrphanAnswer
from causal.records.values import decode, encode
from causal.task.activity import KINDS, Activity
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.assignments import TaskState, WorkerState
from standby.supervision.supervision import Supervision
from tests.members import examples
from tests.unit.standby.scene import MS, Scene, of, snapshot_files

CRASHES_MAX = 1000
LOST_BYTES_MAX = 5
LIVES_MAX = 3


class Played(Scene):
    """Workers that also roll back when the supervisor commands it."""

    def _obey(self, effect: fx.Send) -> None:
        super()._obey(effect)
        worker, message = self.living.get(effect.slot), effect.message
        if worker is not None and message["kind"] == "keep":
            worker["rollback"] = message["rollback"]["number"]
            for task, incarnation, _ in message["rollback"]["retreats"]:
                if self.topology.tasks[task].name == worker["task"]:
                    worker["incarnation"] = max(worker["incarnation"], incarnation)

    def beat(self, slot: str, after_ms: float = 1, **fields: Any) -> list[fx.Effect]:
        return super().beat(slot, after_ms, **{"rollback": self.living[slot].get("rollback", 0), **fields})


def remembered(supervision: Supervision) -> dict[str, Any]:
    """Return all that a supervisor knows from decisions alone; what the beats repeat is left out."""
    assignments, coordinator = supervision.assignments, supervision.coordinator
    return {
        "entries": {
            entry.name: (entry.slot, entry.incarnation, entry.failures, entry.finished)
            for entry in assignments.tasks.values()
        },
        "waiting": [entry.name for entry in assignments.waiting()],
        "slots": {s.name: (s.purpose, s.task, s.incarnation) for s in assignments.slots.values()},
        "leaving": [slot.name for slot in assignments.slots.values() if slot.state is WorkerState.LEAVING],
        "started": (assignments.started_max, assignments.up),
        "checkpoints": (
            coordinator.complete,
            coordinator.count,
            coordinator.files,
            coordinator.took_ms,
            coordinator.durations.shown(),
        ),
        "inquiries": [
            (inquiry.rollback, inquiry.number, inquiry.lost)
            for inquiry in map(supervision.inquiries.of, assignments.tasks)
        ],
        "recoveries": (supervision.timeline.shown(), supervision.timeline.totals.shown()),
        "first record": (supervision.figures.first_record_ns, supervision.figures.life_first_record_ns),
        "end": (supervision.job.stopping, supervision.job.ended),
    }


class Supervised(RuleBasedStateMachine):
    """A job of three tasks."""

    @initialize(
        guarantee=st.sampled_from(("causal", "at-least-once", "epoch")),
        standbys=st.sampled_from(("per-task", "0", "2")),
    )
    def begin(self, guarantee: str, standbys: str) -> None:
        self.scene = Played(guarantee=guarantee, standbys=standbys, crash_loop_max=CRASHES_MAX)
        self.scene.manual_manifest = True
        self.manifest: tuple[int, Any] | None = None
        self.writing: fx.WriteManifest | None = None
        self.counted: dict[str, int] = {}
        self.lives = 1
        self.scene.beats(6)

    def _note(self, effects: list[fx.Effect]) -> None:
        for order in of(effects, fx.WriteManifest):
            self.writing = order

    def _slot(self, place: int) -> str | None:
        living = list(self.scene.living)
        return living[place % len(living)] if living else None

    def _served(self, place: int) -> tuple[int, str, str] | None:
        """Return (index, task, slot) of a task whose process lives and has confirmed it."""
        entries = list(self.scene.supervision.assignments.tasks.values())
        served = [
            (index, entry.name, entry.slot)
            for index, entry in enumerate(entries)
            if entry.state is TaskState.SERVED and entry.slot in self.scene.living
        ]
        return served[place % len(served)] if served else None

    # -- the good days -------------------------------------------------------------------------------------------

    @rule(span_ms=st.sampled_from((50, 300, 1200)))
    def time_passes(self, span_ms: int) -> None:
        self._note(self.scene.idle(span_ms))

    @rule(place=st.integers(0, 9), records=st.integers(0, 9))
    def beat(self, place: int, records: int) -> None:
        slot = self._slot(place)
        if slot is not None:
            self.counted[slot] = self.counted.get(slot, 0) + records
            counters = {"sent_bytes": self.counted[slot], "log_bytes": records}
            self._note(self.scene.beat(slot, counters=counters, first_record_ns=self.scene.now))

    @rule(place=st.integers(0, 9), kind=st.sampled_from((*KINDS, None)), state=st.sampled_from(("", "running")))
    def pulse(self, place: int, kind: str | None, state: str) -> None:
        slot = self._slot(place)
        if slot is not None:
            doing = None if kind is None else Activity(kind, self.scene.now - 1)
            pulse = events.Pulse(slot, int(slot[1:]) + 100, f"ipc:///x/{slot}", state, doing)
            self._note(self.scene.step(pulse))

    @rule(place=st.integers(0, 9), silent_ms=st.sampled_from((1000, 20_000)))
    def a_process_is_busy_for_long(self, place: int, silent_ms: int) -> None:
        """It does not beat, whatever it is or becomes, and is not taken for hung as long as it sends pulses."""
        slot = self._slot(place)
        if slot is None:
            return
        until, since = self.scene.now + silent_ms * MS, self.scene.now
        while self.scene.now < until and slot in self.scene.living:
            for other in list(self.scene.living):
                if other != slot:
                    self._note(self.scene.beat(other))
            pulse = events.Pulse(slot, int(slot[1:]) + 100, doing=Activity("event", since, "slow"))
            self._note(self.scene.step(pulse, 400))
        silent = [record for record in self.scene.journal if record["kind"] == "killing" and record["why"] == "silent"]
        assert not any(record["slot"] == slot for record in silent)

    @rule()
    def agent_beat(self) -> None:
        self._note(self.scene.agent_beat())

    @rule(times=st.integers(1, 3))
    def snapshots_come(self, times: int) -> None:
        """Snapshots of some tasks come in order; with all three the checkpoint can be complete."""
        coordinator = self.scene.supervision.coordinator
        if not coordinator.under_way:
            self.scene.idle(self.scene.config.checkpoint_interval_s * 1000)
        for place in range(times):
            served = self._served(place)
            if served is not None:
                _, task, slot = served
                incarnation = self.scene.incarnation_of(task)
                files = snapshot_files(task, coordinator.under_way, incarnation)
                snapshot = events.SnapshotReported(slot, task, incarnation, coordinator.under_way, files)
                self._note(self.scene.step(snapshot))

    @precondition(lambda self: self.writing is not None)
    @rule(written=st.sampled_from((True, True, False)))
    def the_manifest(self, written: bool) -> None:
        assert self.writing is not None
        order, self.writing = self.writing, None
        if written:
            self.manifest = (order.epoch, order.files)
            self._note(self.scene.step(events.ManifestWritten(order.epoch)))
        else:
            self._note(self.scene.step(events.ManifestFailed(order.epoch, "the disk is full")))

    @rule()
    def everybody_is_well(self) -> None:
        """Every killed process has died, every started one has come up."""
        for _ in range(3):
            self._note(self.scene.idle(200))
            self.those_that_were_killed_die()
            self._note(self.scene.agent_beat())

    @rule(written=st.booleans())
    def a_whole_checkpoint(self, written: bool) -> None:
        self.everybody_is_well()
        self.snapshots_come(3)
        if self.writing is not None and written:
            self.the_manifest(True)

    @rule(place=st.integers(0, 2), answers=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3))
    def a_whole_rollback(self, place: int, answers: list[tuple[bool, bool]]) -> None:
        self.everybody_is_well()
        self.determinants_are_lost(place, self.scene.supervision.coordinator.complete, place)
        self.tasks_are_asked([(settled, orphan, 2) for settled, orphan in answers])

    @rule(place=st.integers(0, 2), phase=st.sampled_from(("promoted", "collected", "replayed", "running", "withdrawn")))
    def phase(self, place: int, phase: str) -> None:
        served = self._served(place)
        if served is not None:
            self._note(self.scene.phase(served[1], phase, 3))

    # -- the bad ones --------------------------------------------------------------------------------------------

    @rule(place=st.integers(0, 9), reported=st.booleans())
    def a_process_dies(self, place: int, reported: bool) -> None:
        """Its exit is reported immediately, or by the next beat of the agent."""
        slot = self._slot(place)
        if slot is None:
            return
        if reported:
            self._note(self.scene.die(slot, last_line="out of memory"))
        else:
            self.scene.living.pop(slot)
            self.scene.dead[slot] = -9

    @rule()
    def those_that_were_killed_die(self) -> None:
        for slot in list(self.scene.supervision.assignments.slots.values()):
            if slot.state is WorkerState.LEAVING and slot.name in self.scene.living:
                self._note(self.scene.die(slot.name, killed_ns=self.scene.now))

    @rule(place=st.integers(0, 2))
    def a_task_fails(self, place: int) -> None:
        served = self._served(place)
        if served is not None:
            _, task, slot = served
            failure = events.Failed(slot, task, self.scene.incarnation_of(task), "Unavailable", "no disk", False)
            self._note(self.scene.step(failure))

    @rule(task=st.sampled_from(("read/0", "count/0", "absent/0")))
    def a_kill_is_asked_for(self, task: str) -> None:
        self._note(self.scene.step(events.Admin("admin-1", "kill", {"task": task})))

    @rule(place=st.integers(0, 2), epoch=st.integers(0, 2), extent=st.integers(0, LOST_BYTES_MAX))
    def determinants_are_lost(self, place: int, epoch: int, extent: int) -> None:
        served = self._served(place)
        if served is not None:
            self._note(self.scene.beat(served[2], lost=((served[0], epoch, extent),)))

    @rule(answers=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, LOST_BYTES_MAX)), max_size=3))
    def tasks_are_asked(self, answers: list[tuple[bool, bool, int]]) -> None:
        for place, (settled, orphan, extent) in enumerate(answers):
            served = self._served(place)
            if served is None or not self.scene.supervision.inquiries.of(served[1]).lost:
                return
            index, task, slot = served
            inquiry = self.scene.supervision.inquiries.of(task)
            finding = OrphanAnswer(settled, inquiry.lost[0] if orphan else None, ((index, 0, extent),))
            number, incarnation = inquiry.number, self.scene.incarnation_of(task)
            self._note(self.scene.step(events.OrphanReport(slot, task, incarnation, number, finding)))

    # -- the supervisor itself -----------------------------------------------------------------------------------

    @rule()
    def the_supervisor_is_killed(self) -> None:
        self.writing = None
        self.scene.restart(self.manifest)
        self._note(self.scene.said)

    @precondition(lambda self: self.lives <= LIVES_MAX)
    @rule()
    def all_dies_and_the_job_is_resumed(self) -> None:
        self.lives += 1
        self.scene.living.clear()
        self.scene.dead.clear()
        self.counted.clear()
        self.writing = None
        self.scene.journal.append({"kind": "resumed", "at_ns": self.scene.now})
        self.scene.restart(self.manifest)
        self._note(self.scene.said)

    # -- what holds always ---------------------------------------------------------------------------------------

    @invariant()
    def another_supervisor_would_know_the_same(self) -> None:
        if not hasattr(self, "scene"):
            return
        twin = Supervision(self.scene.config, self.scene.blueprint)
        for record in self.scene.journal:
            stored = decode(encode(dict(record)))
            assert stored == record, "a decision survives the journal unchanged"
            twin._apply(stored)  # what `Restored` does, before anything new is decided
        assert remembered(twin) == remembered(self.scene.supervision)

    @invariant()
    def no_incarnation_slot_or_epoch_is_used_twice(self) -> None:
        if not hasattr(self, "scene"):
            return
        incarnations: list[tuple[str, int]] = []
        for record in self.scene.journal:
            if record["kind"] == "promoted":
                incarnations.append((record["task"], record["incarnation"]))
            elif record["kind"] == "rolled_back":
                incarnations += record["tasks"].items()
        assert len(incarnations) == len(set(incarnations))
        by_task = {task: [i for t, i in incarnations if t == task] for task, _ in incarnations}
        assert all(numbers == sorted(numbers) for numbers in by_task.values())
        slots = [record["slot"] for record in self.scene.journal if record["kind"] == "process"]
        assert len(slots) == len(set(slots))
        epochs = [record["epoch"] for record in self.scene.journal if record["kind"] == "checkpoint"]
        assert epochs == list(range(1, len(epochs) + 1))

    @invariant()
    def a_task_has_at_most_one_process_and_a_process_one_task(self) -> None:
        if hasattr(self, "scene"):
            assignments = self.scene.supervision.assignments
            slots = [entry.slot for entry in assignments.tasks.values() if entry.slot]
            assert len(slots) == len(set(slots)) and set(slots) <= set(assignments.slots)


TestSupervised = Supervised.TestCase
TestSupervised.settings = examples(divided_by=2, stateful_step_count=40)
