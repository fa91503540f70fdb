"""The search of a replay for an event: which record of which operator is meant, and what performing it will change.

A stop is *before* the record reaches its operator. What happens next is found out in a copy of this process, which
performs the record and ends, so that the place of user code and the state afterwards are known before the event.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pprint import pformat
from types import CodeType, FrameType
from typing import Any

from causal.determinants import Order
from causal.errors import CausalError, PipelineError, ReplayDivergence
from causal.records.batch import Chunk
from causal.records.values import decode, encode
from causal.task.schedule import ScheduledEvent
from causal.topology import Channel
from operators.replay.exact import Replay
from operators.replay.watched import Arriving
from operators.stage.context import Context
from operators.tracebacks import described, of_a_user

ANY = object()
"""The key of a search for records of any key."""
WIDTH = 100
_READ_BYTES = 1 << 16

Trace = Callable[[FrameType, str, Any], Any]
set_trace = sys.settrace
"""The function itself, which debugpy replaces with one that warns."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The n-th event of a key at an operator of a task, counted from 1 at the beginning of a replay."""

    task: str
    operator: str
    key: Any
    number: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search for the first record, or other event, that fulfils all of these conditions.

    Attributes:
        epoch: the first epoch in which it may be.
        task: the name of the task; empty for any task.
        key: the key of the record, timer, window or answer; `ANY` for any key.
        condition: an expression of Python over the names of `names_at`. It is about records, unless it uses `kind`.
        log_bytes: the event begins after these bytes of the log of `epoch`.
        at_ns: the task's clock has reached this time, or `epoch` is over.
        element: (channel, position) of an element that the event emits.
        event: (task, number) of the event, if it is known.
        raises: the task ends with an exception of this event, as recorded.
        visit: a visit; everything else is then ignored.
    """

    epoch: int
    task: str = ""
    key: Any = ANY
    condition: str = ""
    log_bytes: int = 0
    at_ns: int = 0
    element: tuple[int, int] | None = None
    event: tuple[str, int] | None = None
    visit: Visit | None = None
    raises: bool = False

    def packed(self) -> bytes:
        """Return a search for an element, an event or a visit, for `of`."""
        visit = self.visit
        return encode([
            self.epoch, self.element, self.event,
            visit and [visit.task, visit.operator, visit.key, visit.number],
        ])  # fmt: skip

    @classmethod
    def of(cls, packed: bytes) -> Wanted:
        """Return the search that `packed` returned."""
        epoch, element, event, visit = decode(packed)
        return cls(
            epoch,
            element=None if element is None else (element[0], element[1]),
            event=None if event is None else (event[0], event[1]),
            visit=None if visit is None else Visit(*visit),
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """An event that is about to be performed.

    Attributes:
        kind: `record`, or the kind of another event of a key (`Arriving.kind`) or of the task: `timer`, `answer`,
            `barrier`.
        event: the number of the event in its task and epoch, from 1.
        visit: which event of its key it is; None for an event of the task.
        state: what the operator keeps for the key, by table.
    """

    epoch: int
    task: str
    kind: str
    event: int
    operator: str = ""
    record: Any = None
    key: Any = None
    ctx: Context | None = None
    visit: Visit | None = None
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """The consequences of an event.

    Attributes:
        where: `file:line in function` of the user code that is called first; empty if none is called.
        state: the state afterwards, as it is shown.
        failure: the exception that it raises; empty if it raises none.
    """

    where: str
    state: str
    failure: str


class Search:
    """The search of one replay; it begins at the replay's checkpoint.

    Args:
        stopped: called at each stop, before the event; it may change `wanted`.
        elsewhere: called with what an earlier replay has to look for instead; it does not return.

    Attributes:
        wanted: what the search stops at next; None if it stops no more.
        watched: the state, as it is shown, of the visited key at the last stop, if only a change of it is wanted.
        passed: called before each further event, and after the last one of an epoch.
    """

    def __init__(
        self,
        replay: Replay,
        wanted: Wanted | None,
        stopped: Callable[[Stop], None],
        elsewhere: Callable[[Wanted], None],
    ) -> None:
        self.replay = replay
        self.wanted = wanted
        self.watched: tuple[Visit, str] | None = None
        self._stopped = stopped
        self._elsewhere = elsewhere
        self._condition: tuple[str, CodeType] | None = None
        self._visits: Counter[tuple[str, str, Any]] = Counter()
        self._events: Counter[str] = Counter()
        self._event: tuple[str, ScheduledEvent] = ("", Order(0, 0))
        self._latest: dict[str, Wanted] = {}
        """Task → a search for its latest record, or other event."""
        self._records = 0
        self._record = -1
        """The place, among the records that the current event announces, of the one that causes the wanted row."""
        self._report: tuple[int, Stop] | None = None
        """The pipe to which this copy of the process reports, and the stop; None in the process itself."""
        self._where = ""
        replay.watch_records(self._arrives, self._arrives)
        if wanted is not None and wanted.element is not None:
            replay.cone.emitted = self._emits

    def run(self, last: int) -> None:
        """Perform all epochs up to `last`, and stop at the wanted events.

        Raises:
            CausalError: as for `Replay.perform_epoch`.
        """
        failed = self.replay.cone.failed
        try:
            while self.replay.epoch <= last:
                self.replay.begin_epoch()
                self._events.clear()
                while (following := self.replay.next()) is not None:
                    before = len(failed)
                    self._begin(*following)
                    self.replay.perform()
                    if len(failed) > before:
                        self._fails(following[0])
                    self._settle()
        except BaseException as problem:
            if self._report is not None:
                self._finish(described(problem))
            if isinstance(problem, ReplayDivergence) and self.wanted is not None and self.wanted.raises:
                self._fails(self.wanted.task)  # it does not fail again; its last event is what there is to see
            raise

    def _fails(self, task: str) -> None:
        """Report that a task has ended with an exception, or look for the event that raised it, if that is wanted."""
        if self._report is not None:
            self._finish(described(self.replay.cone.failed[self.replay.index(task)]))
        wanted = self.wanted
        if wanted is not None and wanted.raises and wanted.task == task:
            self._elsewhere(self._latest[task])

    def _begin(self, task: str, event: ScheduledEvent) -> None:
        self._event, self._records, self._record = (task, event), 0, -1
        self._events[task] += 1
        wanted = self.wanted
        if wanted is None or wanted.visit is not None:
            return
        if wanted.raises:
            self._latest[task] = Wanted(self.replay.epoch, event=(task, self._events[task]))
            return
        if wanted.event is not None and wanted.element is None:
            if wanted.event == (task, self._events[task]) and self.replay.epoch == wanted.epoch:
                self._stopped(Stop(self.replay.epoch, task, event.kind, self._events[task]))
            return
        if wanted.element is not None:
            if wanted.event == (task, self._events[task]) and self.replay.epoch == wanted.epoch:
                self._record = self._cause(task, event, wanted.element)
            return
        if type(event) is not Order and wanted.key is ANY and not wanted.condition and self._reached(wanted, task):
            self._stopped(Stop(self.replay.epoch, task, event.kind, self._events[task]))

    def _emits(self, channel: Channel, position: int, chunk: Chunk) -> None:
        """Look for the event that emits the wanted element, of which the search does not know the event yet."""
        wanted = self.wanted
        if wanted is None or wanted.element is None or wanted.event is not None:
            return
        if channel.id == wanted.element[0] and position <= wanted.element[1] < position + chunk.count:
            task = str(self.replay.topology.tasks[channel.source].name)
            self._elsewhere(Wanted(self.replay.epoch, element=wanted.element, event=(task, self._events[task])))

    def _reached(self, wanted: Wanted, task: str) -> bool:
        """Return whether the next event of a task is at or after the wanted place."""
        epoch, replay = self.replay.epoch, self.replay.task(task)
        if wanted.task not in ("", task) or epoch < wanted.epoch:
            return False
        if epoch > wanted.epoch:
            return True
        return replay.begun_bytes >= wanted.log_bytes and replay.last_ns >= wanted.at_ns

    def _arrives(self, arriving: Arriving) -> None:
        self._settle()
        self._records += arriving.kind == "record"
        task, key = arriving.task, arriving.key
        where = (task, arriving.operator, key)
        self._visits[where] += 1
        visit, wanted = Visit(*where, self._visits[where]), self.wanted
        if wanted is None:
            return
        if wanted.raises:
            self._latest[task] = Wanted(self.replay.epoch, visit=visit)
            return
        if wanted.event is not None and wanted.element is None:
            return
        if wanted.visit is not None:
            if wanted.visit == visit and (self.watched is None or self._changed(visit)):
                self._stopped(self._stop_at(arriving, visit))
            elif self.watched is not None and replace(wanted.visit, number=visit.number) == visit:
                self.wanted = replace(wanted, visit=replace(visit, number=visit.number + 1))
            return
        if wanted.element is not None:
            if arriving.kind == "record" and self._record == self._records - 1:
                self._stopped(self._stop_at(arriving, visit))
            return
        if not self._reached(wanted, task) or (wanted.key is not ANY and wanted.key != key):
            return
        if arriving.kind != "record" and wanted.condition and "kind" not in self._compiled(wanted.condition).co_names:
            return
        stop = self._stop_at(arriving, visit)
        if not wanted.condition or self._holds(wanted.condition, stop):
            self._stopped(stop)

    def _changed(self, visit: Visit) -> bool:
        """Return whether the state of the watched key has changed; otherwise, its next record is wanted."""
        watched = self.watched
        now = shown_state(self._state(visit.task, visit.operator, visit.key))
        if watched is not None and now == watched[1]:
            self.wanted = replace(self.wanted or Wanted(0), visit=replace(visit, number=visit.number + 1))
            return False
        return True

    def _stop_at(self, arriving: Arriving, visit: Visit) -> Stop:
        return Stop(
            self.replay.epoch, arriving.task, arriving.kind, self._events[arriving.task], arriving.operator,
            arriving.record, arriving.key, arriving.ctx, visit,
            self._state(arriving.task, arriving.operator, arriving.key),
        )  # fmt: skip

    def _state(self, task: str, operator: str, key: Any) -> Mapping[str, Any]:
        return {} if key is None else self.replay.state(task, operator, key)

    def _holds(self, condition: str, stop: Stop) -> bool:
        """Return whether an expression is true of a record.

        Raises:
            PipelineError: the expression cannot be evaluated.
        """
        try:
            return bool(eval(self._compiled(condition), {}, names_at(stop)))
        except Exception as problem:
            raise PipelineError(
                f"--break {condition}: {described(problem)} for record {stop.record!r:.200} of {stop.operator!r}; the "
                "names are record, key, state, ctx, task, operator, epoch and kind"
            ) from None

    def _compiled(self, condition: str) -> CodeType:
        if self._condition is None or self._condition[0] != condition:
            self._condition = condition, compiled(condition)
        return self._condition[1]

    # The element that an event emits.

    def _cause(self, task: str, event: ScheduledEvent, element: tuple[int, int]) -> int:
        """Return which of an event's elements causes that it emits an element; -1 if this is not one record.

        Elements are left out from the end, each time in a copy of this process, until the output is missing. If the
        task has no operators, the cause is the event that emitted the element which it forwards.
        """
        if type(event) is not Order:
            self._stopped(Stop(self.replay.epoch, task, event.kind, self._events[task]))
            return -1
        low, high = 0, event.count  # the output is there with `high` elements, and not with `low`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._emitted_by(task, element, middle) else (middle, high)
        if not self.replay.chains[task].stages:
            channel = self.replay.task(task).inputs[event.input]
            self._elsewhere(Wanted(self.replay.epoch, element=(channel.id, channel.delivered + low)))
        return low

    def _emitted_by(self, task: str, element: tuple[int, int], count: int) -> bool:
        """Return whether an event emits an element if it delivers `count` elements."""
        child = os.fork()
        if not child:
            status = 1
            try:
                self.wanted = None
                self.replay.task(task).shorten(count)
                outputs = self.replay.topology.outputs(self.replay.index(task))
                for output, position, chunk in self.replay.perform():
                    if outputs[output].id == element[0] and position <= element[1] < position + chunk.count:
                        status = 0
            except CausalError:
                status = 1
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    # What an event will do.

    def outlook(self, stop: Stop) -> Outlook | None:
        """Return what the event of a stop will do; None in the copy of this process that finds it out."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._report, self.wanted = (writing, stop), None
            set_trace(calls_of_users(self._called))
            return None
        os.close(writing)
        content = b""
        while part := os.read(reading, _READ_BYTES):
            content += part
        os.close(reading)
        os.waitpid(child, 0)
        if not content:
            return Outlook("", "", "the process that performed it in advance died")
        where, state, failure = decode(content)
        return Outlook(where, state, failure)

    def _called(self, frame: FrameType) -> None:
        set_trace(None)
        self._where = f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno} in {frame.f_code.co_name}"

    def _settle(self) -> None:
        """End this process if it was to find out what an event does, which has been performed now."""
        if self._report is not None:
            self._finish("")

    def _finish(self, failure: str) -> None:
        """Report the outlook, and end this copy of the process."""
        set_trace(None)
        report, status = self._report, 1
        try:
            if report is not None:
                writing, stop = report
                state = "" if stop.visit is None else shown_state(self._state(stop.task, stop.operator, stop.key))
                content = encode([self._where, state, failure])
                while content:
                    content = content[os.write(writing, content) :]
            status = 0
        finally:
            os._exit(status)


def compiled(condition: str) -> CodeType:
    """Return the code of an expression.

    Raises:
        PipelineError: it is not an expression.
    """
    try:
        return compile(condition, "--break", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as problem:
        raise PipelineError(
            f"--break {condition}: {described(problem)}; use an expression such as record['n'] > 3"
        ) from None


def names_at(stop: Stop) -> dict[str, Any]:
    """Return the names that an expression or a person may use at a stop."""
    return {
        "record": stop.record, "key": stop.key, "state": stop.state, "ctx": stop.ctx, "task": stop.task,
        "operator": stop.operator, "epoch": stop.epoch, "kind": stop.kind,
    }  # fmt: skip


def shown_state(state: Mapping[str, Any] | None) -> str:
    """Return a state as people read it."""
    return pformat(dict(state), width=WIDTH, sort_dicts=False) if state else "empty"


def calls_of_users(called: Callable[[FrameType], Any]) -> Trace:
    """Return a trace function that reports the first call of a function of the user."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return called(frame) if event == "call" and of_a_user(frame.f_code.co_filename) else None

    return trace
