"""The progress of a process's work, observed from another thread, so that the loop's thread records almost nothing.

The observing thread takes samples occasionally. If the loop's thread has not moved on since the last sample, its stack
frames show which operator is running, on which record and key, and at which line. This requires no work per record.
The samples also show which keys take most of the task's time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from reprlib import Repr
from threading import get_ident
from types import FrameType
from typing import Any

from causal.process.clock import monotonic_ns
from causal.task.activity import TEXT_MAX, Activity
from causal.task.hot_keys import HotKeys, Share
from operators.capture.active import NO_OPERATOR, RUNNING
from operators.stage.stages import last_index
from operators.tracebacks import LIBRARIES, OURS

LONG_NS = 500_000_000
"""The duration from which work is reported; it is much shorter than the silence that counts as death."""

_FROZEN = "<frozen"
_KINDS = "operators.kinds."
_NOTHING = object()

_BRIEF = Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 3, 80, 80, 40


@dataclass(slots=True)
class Work:
    """Notes of the loop's thread: plain attributes, which that thread writes and the observing thread reads.

    Attributes:
        kind: "start", "load" or "work" (see `causal.task.activity`); empty while the loop is idle.
        step: a number that is different for each piece of the loop's work; for a task, the number of its turn.
        began_ns: the time at which the current piece of work began.
        done: the number of bytes of the state that have been loaded.
        total: the size of the state in bytes.
        events: the number of events that had begun in this process before the current piece of work.
        thread: the identifier of the loop's thread.
    """

    kind: str = "start"
    step: int = 0
    began_ns: int = field(default_factory=monotonic_ns)
    done: int = 0
    total: int = 0
    events: int = 0
    thread: int = field(default_factory=get_ident)

    def begin(self, kind: str, total: int = 0) -> None:
        """Begin a piece of work."""
        self.turn(monotonic_ns())
        self.kind, self.done, self.total = kind, 0, total

    def turn(self, now_ns: int) -> None:
        """Begin the next turn of the task."""
        self.kind = "work"
        self.step += 1
        self.began_ns, self.events = now_ns, RUNNING.events

    def rest(self) -> int:
        """Record that nothing is in progress, and return the current time."""
        self.kind = ""
        return monotonic_ns()


@dataclass(frozen=True, slots=True)
class _Place:
    """The place in the code that the loop's thread is executing."""

    operator: str = ""
    index: int = -1
    """The index of the record in its batch; -1 if it is unknown."""
    key: Any = _NOTHING
    record: Any = _NOTHING
    at: str = ""


class Progress:
    """An observer of one `Work` that runs in a different thread from the work itself."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._seen: tuple[Any, ...] = ()
        self._since_ns = 0
        self._sampled = HotKeys()
        self.hot_keys: tuple[Share, ...] = ()
        """The keys with their shares of the samples; replaced as a whole, so the loop's thread may read them."""

    def look(self) -> Activity | None:
        """Return the activity that has been in progress for at least `LONG_NS`, or None if there is none."""
        work, now_ns = self._work, monotonic_ns()
        kind = work.kind
        if not kind:
            self._seen = ()
            return None
        if kind == "work":
            self._sample(now_ns)
        if now_ns - work.began_ns < LONG_NS:
            return None
        place = self._place()
        if kind == "work" and place.operator:
            kind = "event"
        seen = (work.step, RUNNING.events, kind, place.operator, place.index)
        if seen != self._seen:
            # The first record of the first event began together with this work; any other is known only from this
            # sample.
            first = self._seen[:1] != seen[:1] and place.index <= 0 and RUNNING.events - work.events <= 1
            self._since_ns = work.began_ns if first else now_ns
            self._seen = seen
        if now_ns - self._since_ns < LONG_NS:
            return None
        shown_key = "" if place.key is _NOTHING else _shown(place.key)
        shown_record = "" if place.record is _NOTHING else _shown(place.record)
        return Activity(
            kind, self._since_ns, place.operator, shown_key, shown_record, place.at, work.done, work.total
        )  # fmt: skip

    def _sample(self, now_ns: int) -> None:
        """Count the key that the loop's thread is working on, without examining records: this runs on every look."""
        key, known = _NOTHING, False
        frame = sys._current_frames().get(self._work.thread) if RUNNING.active is not None else None
        for variables in _locals_of_ours(frame):
            stage = variables.get("self")
            key = _key(stage, variables, key)
            if hasattr(stage, "shown_as"):
                known = key is not _NOTHING
                break
        self._sampled.add(_shown(key) if known else None, now_ns)
        self.hot_keys = self._sampled.shares()

    def _place(self) -> _Place:
        frame = sys._current_frames().get(self._work.thread)
        active = RUNNING.active
        operator = NO_OPERATOR if active is None else active.operator
        if frame is None:
            return _Place(operator)
        at = _outside(frame)
        if active is None:
            return _Place(at=at)
        index, key, record = -1, _NOTHING, _NOTHING
        for variables in _locals_of_ours(frame):
            stage = variables.get("self")
            records, rows = variables.get("records"), variables.get("rows")
            key = _key(stage, variables, key)
            if rows is None:
                records, rows = getattr(stage, "_records", None), getattr(stage, "_rows", None)
            if index < 0 and isinstance(records, list) and rows is not None:
                index = last_index(records, rows)
            if record is _NOTHING:
                record = variables.get("record", record)
                if record is _NOTHING and isinstance(records, list) and 0 <= index < len(records):
                    record = records[index]
            if stage is not None and hasattr(stage, "shown_as"):
                # Within ctx.call, no operator counts as running.
                operator = stage.name if operator == NO_OPERATOR else operator
                break  # the frames further out belong to the chain
        return _Place(operator, index, key, record, at)


def _key(stage: Any, variables: dict[str, Any], inner: Any) -> Any:
    """Return the key that one frame shows, or else `inner`, the key that the frames inside it show.

    Code that keeps state uses variables named `key` for the name of a value; these do not contain the record's key.
    """
    context = getattr(stage, "_ctx", None)
    if context is not None and hasattr(stage, "_keyed"):
        return context.key if stage._keyed and "batch_keys" not in variables else _NOTHING
    if inner is not _NOTHING or not (hasattr(stage, "shown_as") or type(stage).__module__.startswith(_KINDS)):
        return inner
    return variables.get("key", _NOTHING)


def timed_out(doing: Activity, lasted_s: float, limit_s: float) -> str:
    """Return the one-line message about an event that has exceeded its time limit."""
    of_key = f", key {doing.key}" if doing.key else ""
    of_record = f"; record {doing.record}" if doing.record else ""
    at = f" at {doing.at}" if doing.at else ""
    return (
        f"operator {doing.operator!r}{of_key}: the event is still running{at} after {lasted_s:.1f} s "
        f"(event_timeout_s is {limit_s:g}){of_record}; correct the operator, or raise event_timeout_s and "
        "resume (--resume)"
    )


def _locals_of_ours(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yield the variables of this runtime's frames, from the innermost frame outwards."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            yield dict(frame.f_locals)
        frame = frame.f_back


def _outside(frame: FrameType | None) -> str:
    """Return the file and line of the innermost user frame or, if there is none, of the innermost library frame."""
    library = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(OURS) and not name.startswith(_FROZEN):
            at = f"{name}:{frame.f_lineno}"
            if not name.startswith(LIBRARIES):
                return at[-TEXT_MAX:]
            library = library or at
        elif library and name.startswith(OURS):
            return library[-TEXT_MAX:]
        frame = frame.f_back
    return ""


def _shown(value: object) -> str:
    """Return a value as a shortened line; this works even while the other thread is changing the value."""
    try:
        return " ".join(_BRIEF.repr(value).split())[:TEXT_MAX]
    except (RuntimeError, LookupError):  # the value was changed during the call
        return f"<{type(value).__name__} that changes>"
