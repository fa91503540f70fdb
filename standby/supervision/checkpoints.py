"""The checkpoint coordinator, which triggers checkpoints, collects acknowledgements and completes checkpoints.

No checkpoint begins while no task performs anything, because it would write the same state again.  A checkpoint that
has begun is never aborted.

Only checkpoint e = last complete + 1 can be under way, so its number need not be journaled.  A restarted supervisor
triggers that checkpoint again, and sources that already have its barrier report this in their beats.  A promoted task
must acknowledge the checkpoint for itself.  If a source died before any task received its barrier, the barrier may have
a different position the second time.  Therefore, `completed` is sent only when no living task would still replay from
below that checkpoint, and no promotion happens while a manifest is being written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import convert, to_builtins

from causal import commands
from causal.commands import Files
from standby.supervision.assignments import Assignments, TaskState, WorkerEntry, WorkerState
from standby.supervision.durations import Durations
from standby.supervision.effects import Outbox, Record, RemoveFiles, WriteManifest
from standby.supervision.file_lists import as_files
from standby.supervision.job_view import DurationsView

AGAIN_NS = 500_000_000
"""The time that a source has to report a barrier before `checkpoint` is sent again."""

MANIFEST_AGAIN_NS, MANIFEST_AGAIN_NS_MAX = 500_000_000, 30_000_000_000
"""The pause after a failure to write a manifest.  It doubles with each failure, up to the maximum."""

LOOK_AGAIN_NS = 50_000_000
"""The interval between checks of whether all tasks have standbys."""

TOOK_KEPT = 1000
"""The number of durations that are kept for the report."""


class Coordinator:
    """The checkpoints of one job."""

    def __init__(
        self,
        assignments: Assignments,
        interval_ns: int,
        enabled: bool,
        unchecked: Callable[[], Sequence[str]] = tuple,
        ends_with_input: bool = False,
    ) -> None:
        """
        Args:
            unchecked: a function that returns the tasks for which a standby has yet to repeat and check an epoch.
                While there are such tasks, an epoch ends only once every task has a standby.
            ends_with_input: whether the job ends once its recorded input is complete.
        """
        self._unchecked = unchecked
        self._assignments = assignments
        self._interval_ns = interval_ns
        self._ends_with_input = ends_with_input
        self.enabled = enabled
        self.complete = 0
        """The epoch of the last complete checkpoint; 0 for none."""
        self.count = 0
        self.files: dict[str, Files] = {}
        self.took_ms: list[float] = []
        self.durations = Durations()
        """The durations of all checkpoints."""
        self.under_way = 0
        """The epoch of the checkpoint under way; 0 for none."""
        self.requested = 0
        """The epoch of the most recently requested savepoint, which begins as soon as possible."""
        self.final = 0
        """The epoch of the savepoint at which the job ends; 0 for none."""
        self._of_change = False
        """Whether `final` is the end of the current version and not of the job."""
        self.holding = False
        """Whether sources hold back records until the checkpoint under way completes, because a task retains too
        much data."""
        self.writing = False
        self._failures = 0
        """The number of consecutive failures to write the manifest for the checkpoint under way."""
        self._again_ns = 0
        self._before: dict[str, Files] = {}
        self._acks: dict[str, Files] = {}
        self._began_ns = 0
        self._due_ns = 0
        self._resting = False
        """Whether the next checkpoint is due but waits until a task performs something."""

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern checkpoints has no effect."""
        if record["kind"] == "checkpoint":
            self._before, self.files = self.files, as_files(record["files"])
            self.complete = record["epoch"]
            self.count = record["count"]
            self.took_ms = [*self.took_ms[-TOOK_KEPT:], record["took_ms"]]
            # These are the durations of all earlier checkpoints, whose records are removed from the journal.
            if "durations" in record:
                self.durations = Durations.of(convert(record["durations"], DurationsView))
            if record["took_ms"]:  # 0 means that the beginning of the checkpoint is unknown
                self.durations.add(record["took_ms"] / 1e3)
            self.under_way, self.writing, self._acks = 0, False, {}
            self.holding = False
            self._failures = self._again_ns = 0
            if self.final < self.complete:
                self.final = 0  # the job has continued; the journal may have dropped the record of that savepoint
        elif record["kind"] == "added":  # a task that was added begins at the last complete checkpoint
            self.files = {**self.files, **as_files({record["task"]: record["files"]})}
        elif record["kind"] == "savepoint":
            self.requested = record["epoch"]
            self.final = record["epoch"] if record["final"] else self.final
        elif record["kind"] == "change" and record["step"] in ("end", "over"):
            self._of_change = record["step"] == "end"
            if not self._of_change and self.final <= self.complete:
                self.final = 0  # the change for which the sources stopped there has ended
        elif record["kind"] == "promoted":
            self._acks.pop(record["task"], None)
        elif record["kind"] == "rolled_back":
            for task in record["tasks"]:
                self._acks.pop(task, None)
        elif record["kind"] == "resumed":
            self.under_way, self.writing, self._acks, self._due_ns = 0, False, {}, 0
            self.holding = False
            if self._of_change or self.final <= self.complete:
                self.final = 0  # the job ended at this savepoint, but a run that resumes from it should continue
            self._of_change = False

    def snapshot_reported(self, task: str, epoch: int, files: Files, now_ns: int, outbox: Outbox) -> None:
        """Record that the present incarnation of `task` has its snapshot for barrier `epoch` on disk."""
        if not self.enabled or self.writing or epoch != self.complete + 1:
            return
        if not self.under_way:  # an earlier supervisor triggered the checkpoint
            self.under_way, self._began_ns = epoch, now_ns
        self._acks[task] = files
        if len(self._acks) == len(self._assignments.tasks) and now_ns >= self._again_ns:
            self.writing = True
            outbox.add(WriteManifest(epoch, dict(self._acks)))

    def written(self, epoch: int, now_ns: int, outbox: Outbox) -> None:
        """Complete the checkpoint, because its manifest is now durable."""
        if not self.writing or epoch != self.under_way:
            return
        files = {task: [list(file) for file in acked] for task, acked in self._acks.items()}
        took_ms, before = (now_ns - self._began_ns) / 1e6, to_builtins(self.durations.shown())
        outbox.decide("checkpoint", count=self.count + 1, epoch=epoch, files=files, took_ms=took_ms, durations=before)
        self._due_ns = max(now_ns, self._began_ns + self._interval_ns)
        for slot in self._assignments.slots.values():
            if slot.state in (WorkerState.SERVING, WorkerState.ASSIGNED) and slot.seen_ns:
                outbox.send(slot.name, commands.Completed(epoch))
        kept = (*self.files.values(), *self._before.values())
        outbox.add(RemoveFiles(frozenset(path for each in kept for path, _, _ in each), epoch, epoch - 1))

    @property
    def failures(self) -> int:
        """The number of consecutive failures to write the manifest for the checkpoint under way."""
        return self._failures

    @property
    def began_ns(self) -> int | None:
        """The time at which this supervisor knows the checkpoint under way to have begun; None if none is under way."""
        return self._began_ns if self.under_way else None

    @property
    def awaited(self) -> list[str]:
        """The tasks that have not acknowledged the checkpoint under way, in graph order."""
        return [name for name in self._assignments.tasks if name not in self._acks] if self.under_way else []

    def not_written(self, epoch: int, now_ns: int) -> None:
        """Schedule a retry after a failure to write the manifest, and discard the acknowledgements, which beats
        repeat.
        """
        if self.writing and epoch == self.under_way:
            self.writing, self._acks = False, {}
            self._again_ns = now_ns + min(MANIFEST_AGAIN_NS << min(self._failures, 16), MANIFEST_AGAIN_NS_MAX)
            self._failures += 1

    def adopt(self, epoch: int, files: Mapping[str, Files], outbox: Outbox) -> None:
        """Complete a checkpoint that was not journaled but whose manifest is on disk."""
        if self.enabled and epoch == self.complete + 1:
            lists = {task: [list(file) for file in acked] for task, acked in files.items()}
            before = to_builtins(self.durations.shown())
            outbox.decide("checkpoint", count=self.count + 1, epoch=epoch, files=lists, took_ms=0.0, durations=before)

    def remind(self, slot: WorkerEntry, outbox: Outbox) -> None:
        """Send `completed` again to a process that may have missed it while no supervisor was running."""
        if self.complete:
            outbox.send(slot.name, commands.Completed(self.complete))

    @property
    def ends(self) -> bool:
        """Whether the checkpoint at which the job ends is complete."""
        return 0 < self.final <= self.complete

    def settle(self, now_ns: int, outbox: Outbox, all_sources: bool = True, hurries: bool = False) -> None:
        """Begin the next checkpoint when it is due, and trigger it at sources that do not have it yet.

        Args:
            hurries: whether the next checkpoint is due now.
            all_sources: whether to examine all sources even if no checkpoint begins; otherwise the beats of the sources
                trigger it.
        """
        if not self.enabled or self.writing or not self._assignments.up:
            return
        if not self._due_ns:
            self._due_ns = now_ns + self._interval_ns
        if self._ends_with_input and not self._of_change:
            self._end_with_input(outbox)
        pressed = self._pressed()
        self._resting = not self.under_way and now_ns >= self._due_ns and self._nothing_changed()
        due = hurries or pressed or self.requested > self.complete or (now_ns >= self._due_ns and not self._resting)
        if due and not self.under_way and self._unchecked() and not self._all_have_standbys():
            self._due_ns, due = now_ns + LOOK_AGAIN_NS, False
        if due and not self.under_way and not self.ends:
            self.under_way, self._began_ns, all_sources = self.complete + 1, now_ns, True
        if self.under_way and pressed and not self.holding:
            self.holding = all_sources = True
        if self.under_way and all_sources:
            for entry in self._assignments.sources:
                slot = self._assignments.holder(entry)
                if entry.state is TaskState.SERVED and slot is not None:
                    self.trigger(slot, now_ns, outbox)

    def _end_with_input(self, outbox: Outbox) -> None:
        """Request the checkpoint that contains all recorded input, and then the savepoint at which the job ends."""
        from standby.supervision.input_end import barrier_after_input  # imported here because few jobs need it

        barrier = barrier_after_input(self._assignments)
        if not barrier or self.final:
            return
        if barrier <= self.complete:
            self.request(True, outbox)
        elif not self.under_way and self.requested <= self.complete:
            self.request(False, outbox)

    def _pressed(self) -> bool:
        """Return whether a task retains so much data that a checkpoint should complete before the sources read more."""
        slots = self._assignments.slots.values()
        return any(slot.wanted_epoch > self.complete and slot.state is WorkerState.SERVING for slot in slots)

    def _nothing_changed(self) -> bool:
        """Return whether the last beats report that no task has performed anything since the last complete checkpoint.

        When a beat reports a change, the supervisor checks again.
        """
        holders = map(self._assignments.holder, self._assignments.tasks.values())
        return self.complete > 0 and all(
            slot is not None and slot.state is WorkerState.SERVING and slot.unchanged and slot.epoch == self.complete
            for slot in holders
        )

    def _all_have_standbys(self) -> bool:
        return all(self._assignments.idle(name) is not None for name in self._assignments.tasks)

    def trigger(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Send `checkpoint` to one source, unless the source has that checkpoint or the command was sent just now.

        A source that must hold back records is sent the command even after its barrier, because it may be a new
        incarnation.
        """
        epoch, sent_ns = slot.triggered
        has_it = slot.epoch >= self.under_way or slot.task in self._acks
        if slot.state is not WorkerState.SERVING or (has_it and not self.holding):
            return
        news = epoch != self.under_way or (self.holding and slot.held_epoch != self.under_way)
        if news or now_ns - sent_ns >= AGAIN_NS:
            slot.triggered = (self.under_way, now_ns)
            slot.held_epoch = self.under_way if self.holding else slot.held_epoch
            outbox.send(slot.name, commands.Checkpoint(self.under_way, self.under_way == self.final, self.holding))

    def request(self, final: bool, outbox: Outbox) -> int:
        """Decide on a savepoint at the next checkpoint that has not begun; return its epoch."""
        if self.final > self.complete:
            return self.final
        epoch = self.complete + 1 + bool(self.under_way)
        if self.requested < epoch or final:
            outbox.decide("savepoint", epoch=epoch, final=final)
        return epoch

    def deadline_ns(self) -> int | None:
        """Return when `settle` must be called even if no event occurs; None if it need not be called."""
        if not self.enabled or self.writing or self.under_way or self._resting or not self._due_ns:
            return None
        return self._due_ns
