"""The view of a job as structs: everything the supervisor knows that `status.json` and the displays show.

`standby.supervision.view` builds the view, `status.json` stores it, and commands, metrics and pages read it.  Each
field of a struct is a field of that file, in the same order.  A field with a default may be missing from a file that an
earlier version wrote.  A field that this version does not know is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from causal.task.activity import Activity

Number = int | float
Figure = Number | dict[str, Number | dict[str, Number]]
"""A metric of a task: a number, or numbers by name, such as determinant bytes by kind."""


class Wait(Struct, frozen=True):
    """A wait, or an upload, that has lasted for a while."""

    since_ns: int
    reason: str


class ShadowView(Struct, frozen=True):
    """A hot standby, which performs what its task performs.

    Attributes:
        behind: how many elements the task has received that the standby has not performed yet.
        compared: how many epochs had the same results as the task.
        difference: the difference that the comparison detected; empty if there is none.
    """

    slot: str
    epoch: int = -1
    incarnation: int = 0
    behind: int = 0
    compared: int = 0
    difference: str = ""


class TaskView(Struct, frozen=True):
    """A task and the process that runs it.

    Attributes:
        kind: "source", "sink" or "operator".
        standbys: the processes that wait to take over the task.
        hot_keys: (key, share) for each of the keys that consume most of the task's time.
    """

    task: str
    kind: str = ""
    source: bool = False
    sink: bool = False
    state: str = ""
    slot: str | None = None
    host: str | None = None
    pid: int | None = None
    incarnation: int = 0
    epoch: int | None = None
    standbys: Sequence[str] = ()
    shadow: ShadowView | None = None
    waiting: Wait | None = None
    uploading: Wait | None = None
    doing: Activity | None = None
    hot_keys: Sequence[Sequence[str | Number]] = ()
    checked_epochs: int = 0
    figures: dict[str, Figure] = {}

    def is_of(self, kind: str) -> bool:
        """Return whether the task is of that kind ("source" or "sink"); every task is of kind ""."""
        return self.source if kind == "source" else self.sink if kind == "sink" else not kind

    def number(self, figure: str) -> Number:
        """Return a metric of the task; 0 if the task does not report it."""
        value = self.figures.get(figure, 0)
        return 0 if isinstance(value, dict) else value

    def numbers(self, figure: str) -> dict[str, Number]:
        """Return the parts of a metric that is split by kind, bound or task; empty if the task does not report it."""
        value = self.figures.get(figure, {})
        parts = value if isinstance(value, dict) else {}
        return {name: part for name, part in parts.items() if not isinstance(part, dict)}

    def counts(self) -> Iterator[tuple[str, str, Number]]:
        """Yield (operator, reason, count) for the elements that the task's operators dropped, held back or revised."""
        value = self.figures.get("counts", {})
        for operator, reasons in value.items() if isinstance(value, dict) else ():
            for reason, count in reasons.items() if isinstance(reasons, dict) else ():
                yield operator, reason, count


class ProcessView(Struct, frozen=True):
    """A worker process; `follows` is the checkpoint that a standby has loaded."""

    slot: str
    pid: int = 0
    state: str = ""
    host: str | None = None
    task: str | None = None
    standby_of: str | None = None
    follows: int | None = None
    doing: Activity | None = None


class HostView(Struct, frozen=True):
    """A host of a multi-host job."""

    host: str
    state: str = ""
    incarnation: int = 0
    zone: str | None = None
    machine: str | None = None
    labels: dict[str, str] = {}
    slots: int = 0
    tasks: Sequence[str] = ()
    standbys: Sequence[str] = ()
    last_heard_ms: Number | None = None
    version: str | None = None
    breakable: bool | None = None
    losses: int = 0
    clock_error_ms: Number | None = None


class HostLossView(Struct, frozen=True):
    """The loss of a host: when it was noticed, and when the last of the host's tasks was live again elsewhere."""

    host: str
    why: str = ""
    tasks: Sequence[str] = ()
    lost_ms: Number | None = None
    recovered_ms: Number | None = None


class DurationsView(Struct, frozen=True):
    """Durations, counted in the buckets of `standby.supervision.durations`."""

    counts: Sequence[int] = ()
    sum_s: Number = 0.0


class CheckpointView(Struct, frozen=True):
    """The checkpoints of a job, and the tasks that the checkpoint under way is waiting for."""

    complete: int = 0
    count: int = 0
    under_way: int | None = None
    took_ms: Sequence[Number] = ()
    durations: DurationsView = DurationsView()
    failures: int = 0
    since_ns: int | None = None
    waits_for: Sequence[str] = ()


class RecoveryView(Struct, frozen=True):
    """A recovery.  Each `*_ms` is measured from the failure, and is None until the recovery reaches that phase."""

    task: str
    mode: str
    since_ns: int = 0
    detected_ms: Number | None = None
    promoted_ms: Number | None = None
    collected_ms: Number | None = None
    replayed_ms: Number | None = None
    replayed_elements: int | None = None
    first_output_ms: Number | None = None
    live_ms: Number | None = None
    why: str = ""
    cause: str = ""
    withdrawn: int = 0

    def after_ms(self, phase: str) -> Number | None:
        """Return when a phase ended, in ms after the failure; `phase` is, for example, "detected"."""
        end_ms: Number | None = getattr(self, f"{phase}_ms")
        return end_ms


class RecoveryNumber(Struct, frozen=True):
    """The number of recoveries of a task in one mode."""

    task: str
    mode: str
    number: int


class PhaseView(Struct, frozen=True):
    """The durations of one phase over all recoveries in one mode."""

    mode: str
    phase: str
    counts: Sequence[int] = ()
    sum_s: Number = 0.0


class RecoveryTotalsView(Struct, frozen=True):
    """Totals over all completed recoveries of a job, including recoveries that are no longer listed."""

    numbers: Sequence[RecoveryNumber] = ()
    phases: Sequence[PhaseView] = ()


class InquiryView(Struct, frozen=True):
    """The state of the inquiry about lost determinants."""

    decided: int = 0
    open: bool = False
    waiting_for: Sequence[str] = ()


class SharingView(Struct, frozen=True):
    """The sharing depth that the current task placement achieves, and the tasks with copies on their own host."""

    reached: int
    at_home: Sequence[str] = ()


class LifeView(Struct, frozen=True):
    """The job since it was last resumed; `before` contains its tasks' positions at that time, by metric."""

    first_record_ns: int | None = None
    before: dict[str, dict[str, Number]] = {}


class EndView(Struct, frozen=True):
    """The end of a job; `lasting` means that another start would fail in the same way."""

    status: int = 0
    reason: str = ""
    lasting: bool = False


class LeaderView(Struct, frozen=True):
    """The supervisor that leads a multi-host job; `here` means that it is the supervisor of this job directory."""

    name: str | None = None
    listen: str = ""
    term: int = 0
    here: bool = False


class CandidateView(Struct, frozen=True):
    """A supervisor that may take over; `hears` means that at least one host reaches it."""

    name: str | None
    listen: str
    heard_ms: Number
    hears: bool = True


class RecordingView(Struct, frozen=True):
    """The recording of the job: its size, and the barriers of the epochs that can be replayed in a row, to the latest.

    Attributes:
        span_s: the time between the two.
        problem: the reason why the last checkpoint was not recorded; empty if it was.
    """

    bytes: int = 0
    first: int = 0
    end: int = 0
    span_s: Number = 0.0
    problem: str = ""


class JobView(Struct, frozen=True):
    """Everything that a user or a report needs to know about a job.

    Attributes:
        at_ns: the supervisor's monotonic time when the view was taken.
        change: what a change of the running job is doing; empty if none is under way.
        supervisor_pid: this field and all later ones describe the process that writes the file.  Such a field is None,
            and is omitted from the file, if it does not apply to that process.
    """

    job: str
    run: str = ""
    state: str = ""
    at_ns: int = 0
    guarantee: str = ""
    sharing_depth: int = 0
    sharing_now: SharingView | None = None
    change: str = ""
    standbys: str = ""
    verify_replay: bool = False
    tasks: Sequence[TaskView] = ()
    processes: Sequence[ProcessView] = ()
    agent_silent_s: Number = 0.0
    hosts: Sequence[HostView] = ()
    host_losses: Sequence[HostLossView] = ()
    without_process: Sequence[str] = ()
    without_standby: Sequence[str] = ()
    checkpoint: CheckpointView = CheckpointView()
    recoveries: Sequence[RecoveryView] = ()
    recovery_totals: RecoveryTotalsView = RecoveryTotalsView()
    kills_left: Sequence[str] = ()
    inquiry: InquiryView = InquiryView()
    first_record_ns: int | None = None
    life: LifeView = LifeView()
    last_output_ns: int | None = None
    ended: EndView | None = None
    supervisor_pid: int | None = None
    dropped_messages: int | None = None
    refused_connections: int | None = None
    leader: LeaderView | None = None
    candidates: Sequence[CandidateView] | None = None
    decisions_wait: str | None = None
    store_problem: str | None = None
    recording: RecordingView | None = None

    def content(self) -> dict[str, Any]:
        """Return the object that is written to `status.json`."""
        content: dict[str, Any] = to_builtins(self)
        return {name: value for name, value in content.items() if value is not None or name not in _OF_WRITER}

    @classmethod
    def of(cls, content: object) -> JobView:
        """Parse the view from the contents of a `status.json`.

        Raises:
            ValueError: the object is not a view, or was written by an incompatible version.
        """
        try:
            return convert(content, cls)
        except ValidationError as problem:
            raise ValueError(str(problem)) from None

    @property
    def elsewhere(self) -> bool:
        """Whether another supervisor leads the job, in which case nothing else in the view is up to date."""
        return self.leader is not None and not self.leader.here


_OF_WRITER = frozenset(JobView.__struct_fields__[JobView.__struct_fields__.index("supervisor_pid") :])
"""The fields that are omitted from the file if they are None."""
