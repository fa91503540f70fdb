"""Windows: docs/guide/windows.md."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from operators import Aggregate, CountWindow, Global, Session, Sliding, Window
from operators.graph import time_of_inputs
from operators.kinds.windows.triggers import AtEnd, EverySeconds, Firing, Trigger
from tests.properties.upgrades.driving import Channel
from tests.properties.upgrades.model import END, Model, MustBeRefused, model, ns

Pair = tuple[Any, int]


def shape(node: Any) -> str:
    """Return of which windows the contents are: they mean nothing for others."""
    assigner, subject = node.options["assigner"], node.subject
    if isinstance(subject, Aggregate):
        known = [kind.__name__ for kind in type(subject).__mro__ if kind.__module__.startswith("operators.")]
        return f"{vars(assigner)} {type(assigner)} {known[0]}"
    return f"{vars(assigner)} {type(assigner)} records"


def starts(assigner: Any, at: int) -> list[int]:
    """Return the starts of the windows of a time."""
    size = ns(assigner.size_ns / 1e9)
    step = ns(assigner.every_ns / 1e9) if isinstance(assigner, Sliding) else size
    offset = assigner.offset_ns
    last = at - (at - offset) % step
    return sorted(range(last, at - size, -step))


class Contents:
    """The contents of a window: an accumulator, or all records."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.folds = isinstance(subject, Aggregate)
        self.slice: Callable[[Any], int] | None = None
        """The slice of a record, where a function receives its records slice by slice."""

    def added(self, content: Any, record: Any) -> Any:
        """Return the content with one record more; None is no content."""
        if self.folds:
            return self.subject.add(self.subject.initial() if content is None else content, record)
        return [*(content or []), record]

    def merged(self, first: Any, second: Any) -> Any:
        """Return two contents as one."""
        return self.subject.merge(first, second) if self.folds else [*first, *second]

    def rows(self, key: Any, content: Any, window: Window) -> list[Any]:
        """Return what a window gives."""
        if content is not None and not self.folds and self.slice:
            content = sorted(content, key=self.slice)
        if self.folds:
            value = content if self.subject.result is None else self.subject.result(content)
            return [(key, value, window.start, window.end)]
        return list(self.subject(key, list(content), window) or ())


class Windowed(Model):
    """The base of all windows."""

    def __init__(self, node: Any, graph: Any) -> None:
        super().__init__(node, graph)
        self.assigner = node.options["assigner"]
        self.contents = Contents(node.subject)
        self.lateness: int = node.options["lateness_ns"]
        self.trigger: Trigger | None = node.options["trigger"]
        self.by_clock = getattr(self.assigner, "clock", "event") == "processing"
        self.time_of = time_of_inputs(node)
        if isinstance(self.assigner, Sliding) and not self.by_clock and self.trigger is None:
            self.contents.slice = self._slice
        self.floor = -END
        """Windows that end no later than this were closed in a version before, and stay closed."""

    def adopt(self, before: Model) -> None:
        if shape(before.node) != shape(self.node) and (before.kept or before.delayed):
            raise MustBeRefused("other windows, or another aggregate")
        super().adopt(before)
        if isinstance(before, Windowed):
            self.floor = before.floor
            if before.mark is not None and not self.by_clock:
                self.floor = max(self.floor, before.mark - before.lateness)

    def _slice(self, record: Any) -> int:
        time = ns(self.time_of(record))  # type: ignore[misc]
        return int((time - self.assigner.offset_ns) // gcd(self.assigner.size_ns, self.assigner.every_ns))

    def give(self, key: Any, content: Any, start: float, end: float) -> None:
        """Emit a window."""
        for row in self.contents.rows(key, content, Window(start, end)):
            self.emit(row, (self.name, 0))


def windows(node: Any, graph: Any) -> Model:
    """Return the model of a window."""
    assigner = node.options["assigner"]
    if isinstance(assigner, CountWindow):
        return Counted(node, graph)
    if isinstance(assigner, Session):
        return Sessions(node, graph)
    return Panes(node, graph)


model("window")(windows)  # type: ignore[arg-type]


class Counted(Windowed):
    """`CountWindow`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        count, content, rows = self.kept.get(key, (0, None, []))
        n, every = self.assigner.n, self.assigner.every
        count, rows = count + 1, [*rows, record][-n:]
        folds = self.contents.folds and n == every
        if folds:
            content = self.contents.added(content, record)
        if count % every == 0:
            if not folds and self.contents.folds:
                content = None
                for each in rows:
                    content = self.contents.added(content, each)
            self.give(key, content if self.contents.folds else rows, max(0, count - n), count)
            content = None
        self.kept[key] = count, content, rows


class Panes(Windowed):
    """Windows of an assigner: by (key, start) [content, unseen, wake, begun, seen, state of the trigger]."""

    @property
    def triggers(self) -> bool:
        """Whether it has a trigger in addition to the end."""
        return self.trigger is not None and not isinstance(self.trigger, AtEnd)

    def end_of(self, start: int) -> int:
        """Return when a window ends."""
        return END if isinstance(self.assigner, Global) else start + int(self.assigner.size_ns)

    def bounds(self, pair: Pair, entry: list[Any]) -> tuple[float, float]:
        """Return the bounds as a row has them."""
        if isinstance(self.assigner, Global):
            return entry[3], entry[4]
        return pair[1] / 1e9, self.end_of(pair[1]) / 1e9

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        if isinstance(self.assigner, Global):
            opened = [0]
        else:
            at = self.graph.now if self.by_clock else ns(self.time_of(record))  # type: ignore[misc]
            opened = [start for start in starts(self.assigner, at) if not self.closed(self.end_of(start))]
            if not opened:
                self.aside("late", record)
        for start in opened:
            self._put((key, start), record)

    def closed(self, end: int) -> bool:
        """Return whether a window with that end takes no record any more."""
        if self.by_clock:
            return False
        return end <= self.floor or (self.mark is not None and end + self.lateness <= self.mark)

    def adopt(self, before: Model) -> None:
        super().adopt(before)
        for pair in [each for each in self.kept if self.closed(self.end_of(each[1]))]:
            del self.kept[pair]
        if _said(before.options["trigger"]) != _said(self.trigger):
            for pair, entry in self.kept.items():
                entry[2], entry[5] = None, {}
                if isinstance(self.trigger, EverySeconds) and entry[1] and entry[0] is not None:
                    start, end = self.bounds(pair, entry)
                    self.trigger.on_record(entry[5], None, Window(start, end), self._time_s())
                self._ask(pair, entry)

    def _put(self, pair: Pair, record: Any) -> None:
        entry = self.kept.setdefault(pair, [None, False, None, 0, 0, {}])
        entry[0] = self.contents.added(entry[0], record)
        entry[1] = True
        entry[4] += 1
        firing = Firing.NOTHING
        if self.triggers and self.trigger is not None:
            start, end = self.bounds(pair, entry)
            firing = self.trigger.on_record(entry[5], record, Window(start, end), self._time_s())
        if (
            firing is Firing.NOTHING
            and not self.by_clock
            and self.mark is not None
            and self.end_of(pair[1]) <= self.mark
        ):
            firing = Firing.FIRE
        self._perform(firing, pair, entry)
        self._ask(pair, entry)

    def _time_s(self) -> float | None:
        if self.trigger is not None and self.trigger.clock == "processing":
            return self.graph.now / 1e9
        return None if self.mark is None else self.mark / 1e9

    def _perform(self, firing: Firing, pair: Pair, entry: list[Any]) -> None:
        if firing is Firing.NOTHING or entry[0] is None:
            return
        self.give(pair[0], entry[0], *self.bounds(pair, entry))
        entry[1] = False
        if firing is Firing.PURGE:
            entry[0], entry[3] = None, entry[4]

    def _ask(self, pair: Pair, entry: list[Any]) -> None:
        if self.triggers and self.trigger is not None:
            start, end = self.bounds(pair, entry)
            at_s = self.trigger.wake_at_s(entry[5], Window(start, end))
            entry[2] = None if at_s is None else -END if at_s == float("-inf") else ns(at_s)

    def _wake(self, now: int) -> None:
        for pair, entry in list(self.kept.items()):
            by_clock = self.trigger is not None and self.trigger.clock == "processing"
            over = not by_clock and self.end_of(pair[1]) <= now
            if self.trigger is not None and entry[2] is not None and entry[2] <= now and not over:
                start, end = self.bounds(pair, entry)
                firing = self.trigger.on_time(entry[5], Window(start, end), now / 1e9)
                if firing is not Firing.FIRE or entry[1]:
                    self._perform(firing, pair, entry)
                entry[2] = None
                self._ask(pair, entry)

    def due(self) -> int:
        if self.mark == END:
            return END
        if self.by_clock:
            return min((self.end_of(start) for _, start in self.kept), default=END)
        if self.trigger is not None and self.trigger.clock == "processing":
            return min((entry[2] for entry in self.kept.values() if entry[2] is not None), default=END)
        return END

    def clock(self, now: int) -> None:
        if self.by_clock:
            self._close(now)
        else:
            self._wake(now)

    def advance(self, mark: int) -> None:
        if self.by_clock and mark != END:
            return
        if self.trigger is not None and self.trigger.clock == "event" and mark != END:
            self._wake(mark)
        self._close(mark)

    def _close(self, mark: int) -> None:
        for pair, entry in list(self.kept.items()):
            end = self.end_of(pair[1])
            if end > mark:
                continue
            if entry[1] and entry[0] is not None:
                self.give(pair[0], entry[0], *self.bounds(pair, entry))
                entry[1] = False
            if mark == END or end + self.lateness <= mark:
                del self.kept[pair]


def _said(trigger: Trigger | None) -> str:
    """Return what a trigger is: its state means nothing for another; `every` counts on, whatever its number is."""
    if trigger is None or isinstance(trigger, AtEnd):
        return ""
    kept = {name: each for name, each in vars(trigger).items() if name not in ("n", "_firing")}
    return f"{type(trigger)} {kept} {trigger.clock}"


class Sessions(Windowed):
    """`Session`: by key a list of [start, end, content, emitted]."""

    def adopt(self, before: Model) -> None:
        super().adopt(before)
        for sessions in self.kept.values():
            if not self.by_clock and self.mark is not None:
                sessions[:] = [each for each in sessions if each[1] + self.lateness > self.mark]

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        gap = int(self.assigner.gap_ns)
        at = self.graph.now if self.by_clock else ns(self.time_of(record))  # type: ignore[misc]
        sessions = self.kept.setdefault(key, [])
        reached = sorted((s for s in sessions if s[0] < at + gap and at < s[1]), key=lambda s: s[0])
        over = self.mark is not None and at + gap + self.lateness <= self.mark
        if not reached and not self.by_clock and (over or at + gap <= self.floor):
            self.aside("late", record)
            return
        content = None
        for each in reached:
            sessions.remove(each)
            content = each[2] if content is None else self.contents.merged(content, each[2])
        content = self.contents.added(content, record)
        start, end = min([at, *(s[0] for s in reached)]), max([at + gap, *(s[1] for s in reached)])
        emitted = not self.by_clock and self.mark is not None and end <= self.mark
        sessions.append([start, end, content, emitted])
        if emitted:
            self.give(key, content, start / 1e9, end / 1e9)

    def due(self) -> int:
        if not self.by_clock or self.mark == END:
            return END
        return min((each[1] for sessions in self.kept.values() for each in sessions), default=END)

    def clock(self, now: int) -> None:
        self._close(now)

    def advance(self, mark: int) -> None:
        if not self.by_clock or mark == END:
            self._close(mark)

    def _close(self, mark: int) -> None:
        for key, sessions in list(self.kept.items()):
            for each in [each for each in sessions if each[1] <= mark]:
                if not each[3]:
                    self.give(key, each[2], each[0] / 1e9, each[1] / 1e9)
                    each[3] = True
                if mark == END or each[1] + self.lateness <= mark:
                    sessions.remove(each)
            if not sessions:
                del self.kept[key]
