"""The tracing of each kind of stage that says more about its output than which state it may depend on (0057)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from operators.graph import RIGHT
from operators.kinds.joins.join_stage import JoinStage
from operators.kinds.ordering.hold import HoldStage
from operators.kinds.process.broadcast import BroadcastStage
from operators.kinds.process.outside_calls import AskStage
from operators.kinds.process.process_stage import ProcessStage
from operators.kinds.tables.suppressing import SuppressStage
from operators.kinds.tables.windowed import WindowTableStage
from operators.kinds.windows.counting import CountWindowStage
from operators.kinds.windows.slices import SliceStage
from operators.kinds.windows.task_windows import Window, WindowStage
from operators.kinds.windows.triggered import TriggeredStage
from operators.kinds.windows.window_stage import AssignedStage, WindowedStage
from operators.records.seconds import ns_of_seconds
from operators.replay.provenance import Cause, Derivation, Provenance
from operators.replay.traced_stages import StageTrace
from operators.replay.watched import AnnouncedBatch
from operators.stage.event_times import times_of
from operators.stage.stages import Stage, last_index


def trace_of(stage: Stage, provenance: Provenance, subtask: str) -> StageTrace:
    """Return the tracing of a stage."""
    kinds: tuple[tuple[type[Stage], type[StageTrace]], ...] = (
        (HoldStage, _Hold), (BroadcastStage, _Broadcast), (ProcessStage, _Process), (AskStage, _Ask),
        (JoinStage, _Join), (WindowTableStage, _WindowTable), (SuppressStage, _Suppress),
        (CountWindowStage, _CountWindow), (WindowedStage, _Windowed), (WindowStage, _TaskWindow),
    )  # fmt: skip
    of_vectors = type(stage).__module__.startswith(("operators.kinds.vectors", "operators.kinds.windows.vector"))
    traced = None if of_vectors else next((trace for kind, trace in kinds if isinstance(stage, kind)), None)
    return (traced or StageTrace)(stage, provenance, subtask)


class _Identified(StageTrace):
    """A stage that keeps records and emits or pairs the same objects later."""

    def _install(self) -> None:
        self._kept_by_id: dict[int, list[Cause]] = {}
        self._alive: list[Any] = []
        """The held records, so that no other object gets their ids."""

    def _hold(self, record: Any, cause: Cause) -> None:
        self._alive.append(record)
        self._kept_by_id.setdefault(id(record), []).append(cause)


class _Hold(_Identified):
    """A record that was held back is released unchanged."""

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        super()._arrive(side, records, keys, causes, elements)
        for record, cause in zip(records, causes, strict=True):
            self._hold(record, cause)

    def causes_of_run(self, output: Any) -> list[Cause]:
        return self.causes_of_event(output)

    def causes_of_event(self, output: Any) -> list[Cause]:
        return [self._released(record) for record in output]

    def _released(self, record: Any) -> Cause:
        causes = self._kept_by_id.get(id(record), ())
        if len(causes) == 1:
            return causes[0]
        return self._derived("records", tuple(causes), older=not causes)


class _Join(_Identified):
    """A pair comes from its two records."""

    def _install(self) -> None:
        super()._install()
        stage: Any = self._stage
        pairing = stage._pairing
        add, add_all = pairing.add, pairing.add_all

        def noting(out: list[Any], key: Any, left: Any, right: Any, index: int | None = None) -> None:
            before = len(out)
            add(out, key, left, right, index)
            self.note(out, before, self._pair(key, left, right))

        def noting_all(out: list[Any], keys: Sequence[Any], lefts: Sequence[Any], rights: Sequence[Any]) -> None:
            before = len(out)
            add_all(out, keys, lefts, rights)
            if len(out) == before + len(keys):
                for place, each in enumerate(zip(keys, lefts, rights, strict=True), before):
                    self.notes.setdefault(id(out), (out, {}))[1][place] = self._pair(*each)

        pairing.add, pairing.add_all = noting, noting_all

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        super()._arrive(side, records, keys, causes, elements)
        for visit, record in enumerate(records, self._first):
            self._hold(record, visit)
            if side == RIGHT and type(record) is tuple and len(record) > 2:
                self._hold(record[2], visit)  # the row of a revision

    def _pair(self, key: Any, left: Any, right: Any) -> Cause:
        key_of = self._provenance.key_of
        causes, exact = list[Cause](), True
        for record in (left, right):
            if record is not None:
                same = [
                    each for each in self._kept_by_id.get(id(record), ()) if type(each) is int and key_of[each] == key
                ]
                causes += same
                exact = exact and len(same) == 1
        unknown = not exact and len(causes) < (left is not None) + (right is not None)
        return self._derived("join", tuple(causes), (key,) if unknown else (), None, exact, unknown)


class _Ask(StageTrace):
    """An answer belongs to one request, which a record has made."""

    def _install(self) -> None:
        stage: Any = self._stage
        opened, combined = stage._open, stage._combined
        self._asked: dict[bytes, int] = {}

        def opening(number: int, body: bytes) -> None:
            opened(number, body)
            self._asked[body] = self._first + number - self._begun

        def combining(answered: Iterable[Sequence[Any]]) -> list[Any]:
            out: list[Any] = []
            for each in answered:
                before = len(out)
                out += combined([each])
                visit = self._asked.pop(each[0], None)
                causes = () if visit is None else (visit,)
                self.note(out, before, self._derived("answer", causes, (), None, visit is not None, visit is None))
            return out

        stage._open, stage._combined = opening, combining

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        super()._arrive(side, records, keys, causes, elements)
        stage: Any = self._stage
        self._begun = stage._numbers.next


class _Process(StageTrace):
    """The output of a timer belongs to a key, and what is put aside to the record that is being processed."""

    def _install(self) -> None:
        stage: Any = self._stage
        one, put_aside = stage._one, stage.put_aside
        self._firing: Cause | None = None
        self._setters: dict[tuple[str, Any, str], Cause] = {}
        """The cause that set each timer, by its clock, key and name."""

        def calling(key: Any, record: Any, ask: Callable[[], Any], out: list[Any]) -> None:
            before = len(out)
            self._firing = self._fired(key, record)
            try:
                one(key, record, ask, out)
            finally:
                cause, self._firing = self._firing, None
            self.note(out, before, cause)

        def putting(tag: str, record: Any) -> None:
            before = len(stage.aside.get(tag, ()))
            put_aside(tag, record)
            cause = self._now()
            if cause is not None and tag in stage.aside:
                self.note(stage.aside[tag], before, cause)

        stage._one, stage.put_aside = calling, putting
        self._place = 0
        """The place in the batch of the next record that the stage takes."""
        ctx = stage._ctx
        ctx._timers = _NotingTimers(ctx._timers, self._setting("processing"))
        ctx._event_timers = _NotingTimers(ctx._event_timers, self._setting("event"))

    def _perform(self, side: int, records: Any, keys: list[Any] | None) -> Any:
        """Process a batch, and find out which of its records find no state."""
        stage: Any = self._stage
        if type(records) is not list or stage._batches is not None:
            return super()._perform(side, records, keys)
        self._place = 0

        def announce(record: Any, key: Any) -> None:
            if key in self._empty((key,)):
                self._provenance.empty_before(self._first + self._place)
            self._place += 1

        batch = AnnouncedBatch(records, keys, announce)
        return super()._perform(side, batch, keys)

    def _setting(self, clock: str) -> Callable[[Any, str], None]:
        def setting(key: Any, name: str) -> None:
            cause = self._now()
            if cause is not None:
                self._setters[clock, key, name] = cause

        return setting

    def _now(self) -> Cause | None:
        """Return the cause that is being processed; None if it is not known."""
        stage: Any = self._stage
        if self._firing is not None:
            return self._firing
        return self._of(last_index(stage._records, stage._rows)) if stage._records and self._first >= 0 else None

    def _fired(self, key: Any, record: Any) -> Derivation:
        if record is None:
            return self._derived("end", (), (key,))
        setter = self._setters.get((record.get("clock", "processing"), key, record["timer"]))
        cause = self._derived("timer", () if setter is None else (setter,), (key,))
        if self._stage._records:  # type: ignore[attr-defined]
            cause.until = self._first + self._place - 1  # it fires before the record that the stage has just taken
        return cause


class _NotingTimers:
    """The timers of a context, which report each timer that is set."""

    def __init__(self, timers: Any, setting: Callable[[Any, str], None]) -> None:
        self._timers = timers
        self._setting = setting

    def set(self, key: Any, name: str, at_ns: int) -> None:
        self._timers.set(key, name, at_ns)
        self._setting(key, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timers, name)


class _Broadcast(_Process):
    """The output for a record depends on the state of its key and on all rules."""

    def _empty(self, keys: Sequence[Any]) -> frozenset[Any]:
        stage: Any = self._stage
        rules = None if stage._rules.values else frozenset((None,))
        return (rules or frozenset()) if None in keys else super()._empty(keys) - {None}

    def causes_of_run(self, output: Any) -> list[Cause]:
        stage: Any = self._stage
        if stage._waiting is not None:
            return self.causes_of_event(output)
        return super().causes_of_run(output)

    def _of_batch(self) -> Cause:
        visits = range(self._first, self._first + len(self._causes))
        return self._derived("records", tuple(visits), (*dict.fromkeys(self._keys), None))

    def _fired(self, key: Any, record: Any) -> Derivation:
        cause = super()._fired(key, record)
        cause.keys = (key, None)
        return cause


class _Suppress(StageTrace):
    """A revision that was held back comes from those of its key."""

    def _empty(self, keys: Sequence[Any]) -> frozenset[Any]:
        stage: Any = self._stage
        return frozenset(key for key in keys if not stage._slots.of(key))

    def causes_of_run(self, output: Any) -> list[Cause]:
        return self.causes_of_event(output)

    def causes_of_event(self, output: Any) -> list[Cause]:
        return [self._derived("revision", (), (revision[0],)) for revision in output]


class _Windowed(StageTrace):
    """A window comes from the records of its key whose time is in it, as far as they have arrived."""

    def _install(self) -> None:
        stage: Any = self._stage
        timed, contents = stage._timed, stage._contents
        emit = contents._emit
        self._in_run = False
        self._open: dict[Any, list[tuple[int, int]]] = {}
        """The windows of each key that had records at the checkpoint."""
        stage._settle()
        for key, slot in contents.values:
            self._open.setdefault(key, []).append(self._bounds(key, slot))

        def timing(records: list[Any], keys: list[Any] | None) -> Any:
            rows, named, times = timed(records, keys)
            self._provenance.times.update((self._first + at, ns) for at, ns in zip(stage._places, times, strict=True))
            return rows, named, times

        def emitting(key: Any, content: Any, window: Window, out: list[Any]) -> None:
            before = len(out)
            emit(key, content, window, out)
            self.note(out, before, self._of_window(key, window))

        stage._timed, contents._emit = timing, emitting

    def _bounds(self, key: Any, slot: Any) -> tuple[int, int]:
        stage: Any = self._stage
        bounds: tuple[int, int] = stage._bounds_of(key, slot)
        return bounds

    def run(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> Any:
        self._in_run = True
        try:
            return super().run(side, records, keys, causes, elements)
        finally:
            self._in_run = False

    def _of_window(self, key: Any, window: Window) -> Cause:
        stage: Any = self._stage
        if isinstance(stage, TriggeredStage):
            return self._derived("window", (), (key,), None, False, key in self._open)
        bounds = ns_of_seconds(window.start), ns_of_seconds(window.end)
        cause = self._derived("window", (), (key,), bounds, not self._refuses, self._was_open(key, bounds))
        if self._in_run:
            cause.until = self._first + stage._places[-1] + 1
        return cause

    def _was_open(self, key: Any, bounds: tuple[int, int]) -> bool:
        """Return whether a window contains records from before the replay."""
        if isinstance(self._stage, AssignedStage) and not isinstance(self._stage, SliceStage):
            return bounds in self._open.get(key, ())
        return any(start < bounds[1] and end > bounds[0] for start, end in self._open.get(key, ()))


class _TaskWindow(StageTrace):
    """A window by the wall clock comes from all records of its key since the last one was emitted."""

    def _install(self) -> None:
        stage: Any = self._stage
        fire, empty = stage._fire_key, stage._emptied
        self._since = 0
        self._older = set(stage.kept_keys())

        def firing(key: Any, records: list[Any], window: Window, out: list[Any]) -> None:
            before = len(out)
            fire(key, records, window, out)
            visits = self._provenance.history(self.operator, key).visits
            causes = tuple(visits[bisect_left(visits, self._since) :])
            self.note(out, before, self._derived("window", causes, (), None, True, key in self._older))

        def emptying(window: Window) -> Any:
            out = empty(window)
            self._since = len(self._provenance.cause_of)
            self._older.clear()
            return out

        stage._fire_key, stage._emptied = firing, emptying


class _CountWindow(StageTrace):
    """A window by count comes from the records of its key with these numbers."""

    def _install(self) -> None:
        stage: Any = self._stage
        emit = stage._emit
        self._before: dict[Any, int] = {}
        """The number of records of each key before the replay."""

        def emitting(key: Any, content: Any, window: Window, out: list[Any]) -> None:
            before = len(out)
            emit(key, content, window, out)
            self.note(out, before, self._of_window(key, window))

        stage._emit = emitting

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        stage: Any = self._stage
        for key in dict.fromkeys(keys or [None]):
            if key not in self._before:
                entry = stage._table.values.get(key)
                self._before[key] = 0 if entry is None else entry[0]
        super()._arrive(side, records, keys, causes, elements)

    def _of_window(self, key: Any, window: Window) -> Cause:
        before = self._before[key]
        older = window.start < before
        if self._stage.failures.set_aside:  # records that were refused have no number
            return self._derived("window", (), (key,), None, False, older)
        visits = self._provenance.history(self.operator, key).visits
        causes = tuple(visits[max(0, int(window.start) - before) : max(0, int(window.end) - before)])
        return self._derived("window", causes, (), None, True, older)


class _WindowTable(StageTrace):
    """The row of a window comes from the records of its key whose time is in it, as far as they have arrived."""

    def _install(self) -> None:
        stage: Any = self._stage
        self._open = {stage._key_of(pair) for pair in stage._slots.values}
        """The rows that existed at the checkpoint."""

    def _arrive(
        self, side: int, records: Any, keys: list[Any] | None, causes: Sequence[Cause], elements: Sequence[int]
    ) -> None:
        super()._arrive(side, records, keys, causes, elements)
        stage: Any = self._stage
        lost: Sequence[int]
        times, lost = times_of(stage._time_of, records, lambda index, problem: None)
        gone = frozenset(lost)
        places = [place for place in range(len(records)) if place not in gone]
        self._provenance.times.update((self._first + at, time_ns) for at, time_ns in zip(places, times, strict=True))

    def causes_of_run(self, output: Any) -> list[Cause]:
        return [self._of_row(revision[0], place) for place, revision in enumerate(output)]

    def _of_row(self, row: Any, place: int) -> Cause:
        index = self._stage.source_of(place)
        bounds = ns_of_seconds(row[1]), ns_of_seconds(row[2])
        cause = self._derived(
            "window", (self._first + index,), (row[0],), bounds, not self._refuses, self._was_open(row)
        )
        cause.until = self._first + index + 1
        return cause

    def _was_open(self, row: Any) -> bool:
        return any(key == row[0] and start < row[2] and end > row[1] for key, start, end in self._open)
