"""Windows with a trigger: they are emitted when it fires, and at their end if records have arrived since then.

In addition to its contents, a window has an entry `[unseen, wake, begun, seen, state]` until it is removed: whether
records have arrived since the window was emitted, the time in ns at which to call the trigger, the number of the first
record in the window, the number of records that have arrived, and the trigger's state. Each record is added and passed
to the trigger before the next one, so results do not depend on batches. A batch is added as a whole if none of its
records can make the trigger fire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

from causal.errors import CausalError
from causal.records.rows import Counted
from operators.graph import ORDERED, Node, time_of_inputs
from operators.kinds.windows.assigners import Global, Tumbling
from operators.kinds.windows.panes import UNSEEN, PaneStage
from operators.kinds.windows.task_windows import Window
from operators.kinds.windows.triggers import AtEnd, EverySeconds, Firing, Trigger, described
from operators.kinds.windows.wakes import Wakes
from operators.kinds.windows.window_stage import window_of
from operators.records.seconds import LATEST_S, ns_of_seconds, seconds_of
from operators.stage.event_times import ns_of, times_of
from operators.stage.scope import Scope
from operators.stage.stages import Due, ServedStage, without
from operators.state.due_index import Pair

_WAKE, _BEGUN, _SEEN, _STATE = range(UNSEEN + 1, 5)
_ALWAYS_NS = -(1 << 63)
"""A wake time before every event time: the trigger is called as soon as any time is known."""
_ONLY = 0
"""The start of the single window per key that `Global` assigns."""
_Entry = list[Any]


class TriggeredStage(ServedStage, PaneStage):
    """`window(name, Assigner, contents, trigger=…)` with event time."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        trigger: Trigger = node.options["trigger"] or AtEnd()
        ordered = node.options.get("delivery") == ORDERED and trigger.clock == "event"
        self._in_order = time_of_inputs(node) if ordered else None
        """The function that returns a record's event time; None unless records are delivered in event-time order."""
        if isinstance(self._assigner, Global):
            self._time_of = None
        self._trigger = trigger
        self._wakes_itself = type(trigger).wake_at_s is not Trigger.wake_at_s
        asks = type(trigger).on_record is not Trigger.on_record
        self._one_by_one = asks or (self._contents.shares and not isinstance(self._assigner, (Tumbling, Global)))
        """Whether records are added to windows one by one; otherwise, a whole batch is added to its windows."""
        self._by_clock = trigger.clock == "processing"
        self._trigger_was = described(trigger)
        """The trigger that the entries belong to; until `changed` is called, it is the trigger in the snapshot."""
        self._clock_wakes = Wakes()

    # Records.

    def run(self, records: Any, keys: list[Any] | None) -> Any:
        """Process a batch; if records arrive in order, each one advances event time, so watermarks do not matter."""
        if isinstance(records, Counted):
            counts: Counter[Pair] = Counter()
            for key, count in zip(keys or (), records.counts, strict=True):
                counts[key, _ONLY] += count
            self._contents.add_counted(counts)
            self._came(counts)
            return []
        if self._in_order is None:
            return super().run(records, keys)
        times, lost = times_of(
            self._in_order, records, lambda index, problem: self.failed(index, records[index], problem)
        )
        if lost:
            records, keys = without(records, lost), None if keys is None else without(keys, lost)
        out: list[Any] = []
        for index, time_ns in enumerate(times):
            if self.mark_ns is None or time_ns > self.mark_ns:
                out += self.advance(time_ns)
            out += super().run(records[index : index + 1], None if keys is None else keys[index : index + 1])
        return out

    def _absorb(self, pairs: Sequence[Pair], rows: Sequence[Any], places: Sequence[int], out: list[Any]) -> None:
        contents, entries = self._contents, self._entries
        distinct = dict.fromkeys(pairs)
        if not (self._one_by_one or contents.refuses or any(map(self._pane_ended, distinct))):
            self._absorb_at_once(pairs, rows, places)
            return
        contents.opening(distinct)
        self._table.touch(distinct)
        failed = self._failed_in(places, rows)
        mark_s = self._mark_s()
        for _, same in groupby(range(len(rows)), key=places.__getitem__):
            indices = list(same)
            record = rows[indices[0]]
            try:
                contents.put([pairs[index] for index in indices], record)
            except CausalError:
                raise
            except Exception as problem:
                failed(indices[0], pairs[indices[0]], problem)
                continue
            for index in indices:
                self._judge(pairs[index], record, mark_s, out)
        for pair in distinct:
            if pair in entries:
                self._schedule(pair, entries[pair])

    def _absorb_at_once(self, pairs: Sequence[Pair], rows: Sequence[Any], places: Sequence[int]) -> None:
        """Add rows to windows when no record can cause an emission."""
        self._contents.add(pairs, rows, self._failed_in(places, rows), places)
        self._came(Counter(pairs))

    def _came(self, counts: Mapping[Pair, int]) -> None:
        """Record that these numbers of records were added to windows without causing an emission."""
        self._table.touch(counts)
        for pair, count in counts.items():
            entry = self._entries.get(pair)
            known = entry is not None
            if entry is None:
                entry = self._entries[pair] = [False, None, 0, 0, {}]
            entry[UNSEEN] = True
            entry[_SEEN] += count
            if self._wakes_itself or not known:
                self._schedule(pair, entry)

    def _judge(self, pair: Pair, record: Any, mark_s: float | None, out: list[Any]) -> None:
        """Call the trigger for a record that was added to a window, and carry out its decision."""
        entry = self._entries.get(pair)
        if entry is None:
            entry = self._entries[pair] = [False, None, 0, 0, {}]
        entry[UNSEEN] = True
        entry[_SEEN] += 1
        try:
            firing = self._trigger.on_record(entry[_STATE], record, self._bounds(pair, entry), mark_s)
        except CausalError:
            raise
        except Exception as problem:
            self._stop(pair, problem)
        if firing is Firing.NOTHING and self._pane_ended(pair):
            firing = Firing.FIRE
        if firing is not Firing.NOTHING:
            self._perform(firing, pair, entry, out)

    def _mark_s(self) -> float | None:
        if self._by_clock:
            return seconds_of(self._services.now_ns() // 1000 * 1000)
        return None if self.mark_ns is None else seconds_of(self.mark_ns)

    def _pane_ended(self, pair: Pair) -> bool:
        return self._ended(pair[0], self._assigner.end_ns(pair[1]))

    def _bounds(self, pair: Pair, entry: _Entry) -> Window:
        """Return the bounds of a window in seconds; for a global window, return the numbers of its records."""
        if isinstance(self._assigner, Global):
            return Window(entry[_BEGUN], entry[_SEEN])
        return window_of(pair[1], self._assigner.end_ns(pair[1]))

    def _perform(self, firing: object, pair: Pair, entry: _Entry, out: list[Any]) -> None:
        if not isinstance(firing, Firing):
            self._stop(pair, TypeError(f"a trigger returned {firing!r}; return Firing.NOTHING, FIRE or PURGE"))
        if firing is Firing.NOTHING or pair not in self._contents.values:
            return
        self._contents.emit(pair, self._bounds(pair, entry), out, keeps=firing is Firing.FIRE)
        entry[UNSEEN] = False
        if firing is Firing.PURGE:
            self._contents.drop([pair])
            entry[_BEGUN] = entry[_SEEN]

    def _schedule(self, pair: Pair, entry: _Entry) -> None:
        """Ask the trigger when it wants to be called next, and schedule that call."""
        if self._wakes_itself and not self._pane_ended(pair):
            try:
                at_s = self._trigger.wake_at_s(entry[_STATE], self._bounds(pair, entry))
                entry[_WAKE] = None if at_s is None else _wake_ns(at_s)
            except CausalError:
                raise
            except Exception as problem:
                self._stop(pair, problem)
        self._set_wakes(pair, entry)

    def _set_wakes(self, pair: Pair, entry: _Entry) -> None:
        at_ns = self._due_ns(pair)
        if self._by_clock:
            self._clock_wakes.forget([pair])
            if entry[_WAKE] is not None:
                self._clock_wakes.set(pair, entry[_WAKE])
        elif entry[_WAKE] is not None and not self._pane_ended(pair):
            at_ns = min(at_ns, entry[_WAKE])
        self._wakes.set(pair, at_ns)

    def _stop(self, pair: Pair, problem: Exception) -> NoReturn:
        key = {"key": pair[0]} if self._keyed else {}
        self.failures.stop(self.name, {**key, "window": pair[1], "trigger": type(self._trigger).__name__}, problem)

    # Time.

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        gone: list[Pair] = []
        self._table.touch(due)
        for pair in due:
            entry, end_ns = self._entries[pair], self._assigner.end_ns(pair[1])
            if end_ns > mark_ns:
                self._wake(pair, entry, mark_ns, out)
                continue
            over = end_ns + self._lateness_ns <= mark_ns
            if entry[UNSEEN] and pair in self._contents.values:
                self._contents.emit(pair, self._bounds(pair, entry), out, keeps=not over)
                entry[UNSEEN] = False
            if over:
                gone.append(pair)
            else:
                self._wakes.set(pair, end_ns + self._lateness_ns)
        self._contents.drop(gone)
        self._clock_wakes.forget(gone)
        for pair in gone:
            del self._entries[pair]

    def _wake(self, pair: Pair, entry: _Entry, at_ns: int, out: list[Any]) -> None:
        """Call the trigger because its clock has reached the time that it requested."""
        try:
            firing = self._trigger.on_time(entry[_STATE], self._bounds(pair, entry), seconds_of(at_ns))
        except CausalError:
            raise
        except Exception as problem:
            self._stop(pair, problem)
        if firing is not Firing.FIRE or entry[UNSEEN]:
            self._perform(firing, pair, entry, out)
        entry[_WAKE] = None
        self._schedule(pair, entry)
        if entry[_WAKE] is not None and entry[_WAKE] <= at_ns:
            self._stop(
                pair,
                ValueError(f"wake_at_s returned a time that had already passed when on_time was called at {at_ns} ns"),
            )

    def next_ns(self) -> int | None:
        self._settle()
        return self._clock_wakes.next_ns()

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        due_ns: int = entries[-1][3]
        out: list[Any] = []
        due = self._clock_wakes.due(due_ns)
        self._table.touch(due)
        for pair in due:
            self._wake(pair, self._entries[pair], due_ns, out)
        return out

    # State.

    def header(self) -> dict[str, Any]:
        return {**super().header(), "trigger": self._trigger_was}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._trigger_was = header.get("trigger", self._trigger_was)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**super().merge_headers(headers), "trigger": headers[0].get("trigger", self._trigger_was)}

    def changed(self, epoch: int) -> None:
        """Add entries for windows that had no trigger; reset the trigger state if the trigger was replaced."""
        was, self._trigger_was = self._trigger_was, described(self._trigger)
        contents, entries = self._contents.values, self._entries
        self._table.touch([*contents, *entries])
        fresh = [pair for pair in contents if pair not in entries]
        for pair in fresh:
            entries[pair] = [not self._pane_ended(pair), None, 0, 0, {}]
        for pair in fresh if was == self._trigger_was else list(entries):
            entry = entries[pair]
            entry[_STATE], entry[_WAKE] = {}, None
            if pair not in contents and not isinstance(self._assigner, Global):
                del entries[pair]  # a purged window does not outlive the trigger that purged it
            elif isinstance(self._trigger, EverySeconds) and entry[UNSEEN]:
                self._trigger.begin(entry[_STATE], None if self.mark_ns is None else seconds_of(self.mark_ns))
            if pair in entries:
                self._schedule(pair, entry)

    def _rebuild(self) -> None:
        self._clock_wakes.clear()
        for pair, entry in self._entries.items():
            self._set_wakes(pair, entry)


def _wake_ns(at_s: float) -> int:
    """Convert the time of a trigger call to ns; it may be a trigger period beyond the range of record times."""
    if at_s == float("-inf"):
        return _ALWAYS_NS
    is_far = isinstance(at_s, float) and LATEST_S <= abs(at_s) <= 2 * LATEST_S
    return ns_of_seconds(at_s) if is_far else ns_of(at_s)
