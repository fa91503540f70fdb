"""The stage of user operators: loops over a batch that provide state, timers and responses for each `process` call."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from gc import is_tracked
from inspect import isgeneratorfunction
from itertools import repeat
from typing import Any

from causal.errors import CausalError, OperatorFailed
from causal.ports import Services
from causal.records.values import NotCarried, encode
from operators.graph import LEFT, Node, watermarked
from operators.records.ownership import SCALARS, copy_containers
from operators.records.seconds import seconds_of
from operators.stage.context import Context
from operators.stage.event_times import ns_of
from operators.stage.failures import NO_KEY, shown
from operators.stage.operator import Operator
from operators.stage.scope import Scope
from operators.stage.stages import Due, Stage, check_records, last_index
from operators.stage.state_binding import Binding, declared
from operators.stage.watermark_merge import END_NS
from operators.state.cold_values import Disk
from operators.state.declared import NoKey
from operators.state.keyed_tables import FragmentJob, KeyedTable, States, StateTable
from operators.state.timers import CHAIN_PER_EVENT_MAX, Timer, Timers, TimerTable
from operators.state.undo import Undo, UndoneTimers

_IN_OPEN = NoKey("declared state belongs to a key, but open() has no key; use it in process, on_timer or finish")
_KEYS_AT_ONCE = 1000
"""The number of keys for which `finish` is called before loaded state is moved back to disk."""
_TICK = -1
"""The number that a tick has instead of a timer's number; a tick precedes timers with the same time."""
_CHAIN_MAX = 10_000
"""The number of event-time timers that may set one another at one event time before the job stops."""
_UNREAD = "unread aside"
_TAGS_COUNTED_MAX = 20
"""The maximum number of unread tags with a count of their own; records of further tags are counted together."""
_REPLACED = "ctx.state was replaced; change it in place: ctx.state.clear(), ctx.state.update(...)"


class ProcessStage(Stage):
    """The stage of `process(name, operator)`: one user operator in one task."""

    renews = True
    context: type[Context] = Context
    """The class of the operator's `ctx`."""

    def __init__(
        self,
        node: Node,
        scope: Scope,
        time_of: Callable[[Any], Any] | None = None,
        disk: Disk | None = None,
        in_order: bool = False,
    ) -> None:
        """
        Args:
            time_of: returns the event time of a record; None if event time is not known.
            disk: the store for state that is not in memory; None to keep all state in memory.
            in_order: whether records arrive in the order of their event times, so that each one advances event time.
        """
        name, key_groups = node.name, scope.config.key_groups
        # Use a copy so that tasks in the same process do not share attributes.
        operator: Operator = copy.copy(node.subject)
        super().__init__(name, scope)
        self._operator = operator
        self._keyed = node.keyed
        self._states: dict[Any, dict[Any, Any]] = States()
        self._table = StateTable(name, name, key_groups, self._states)
        if disk is not None:
            self._states = states = disk.values(copy_containers, copy_containers, len(declared(operator)) + 1, dict)
            self._table.keep(states, states)
        refusal = ""
        if type(operator).on_timer is Operator.on_timer:
            refusal = f"{type(operator).__name__} sets a timer; define on_timer(self, name, ctx)"
        event_refusal = refusal or _without_event_time(node)
        self._undo = Undo() if self.failures.set_aside else None
        self._timers, self._event_timers = (
            self._new_timers(TimerTable(f"{name}:{kind}", name, key_groups), scope.numbers, refused, chain_max)
            for kind, refused, chain_max in (
                ("timers", refusal, CHAIN_PER_EVENT_MAX),
                ("event-timers", event_refusal, None),
            )
        )
        self._ctx = self.context(name, scope.task, self._states, self._timers, self._event_timers, self)
        self._time_of = time_of
        self._tags = scope.tags
        self._records: Sequence[Any] = ()
        self._rows: Iterator[Any] = iter(())
        self._timer_ns: int | None = None
        """The time of the event-time timer that is firing."""
        self._mark_ns: int | None = None
        self._age_mark_ns: int | None = None
        """The last watermark before the end of the input; ages are measured by it where there is no event time."""
        self._ordered = in_order
        self._fired = False
        """Whether a timer has fired in this event."""
        self._record_ns = 0
        self._record_index = -1
        self._declared = Binding(
            operator, name, self._ctx, key_groups, self._ctx.now_ns, self._age_ns, disk, self._undo
        )
        self._tables_by_key = [self._timers.table, self._event_timers.table, *self._declared.tables]
        self._cold = [table for table in (self._table, *self._declared.tables) if table.cold is not None]
        aging = [state.clock for state in declared(operator).values() if state.ttl_ns]
        self._ages = bool(aging)
        self._in_order = time_of if in_order and (not refusal or "event" in aging) else None
        self._finishes = type(operator).finish is not Operator.finish
        self._generates = isgeneratorfunction(operator.process)
        self._batches: Callable[..., Any] | None = getattr(operator, "process_batch", None)
        self._marks: list[int] = []

    def _new_timers(
        self, table: TimerTable, sequence: Callable[[], int], refusal: str, chain_max: int | None
    ) -> Timers:
        if self._undo is None:
            return Timers(table, sequence, refusal, chain_max)
        return UndoneTimers(table, sequence, refusal, chain_max, undo=self._undo)

    # Records.

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        if self._cold:
            self._warm(keys)
        touched = (None,) if keys is None else keys
        self._table.touch(touched)
        for table in self._tables_by_key:
            table.claim(touched)
        if self._batches is not None:
            return self._run_batch(records, keys)
        out: list[Any] = []
        marks: list[int] | None = [] if self.traced else None
        self._records, self._rows, self._record_index = records, iter(records), -1
        rows = self._rows
        pairs: Iterator[tuple[Any, Any]] = zip(repeat(None) if keys is None else keys, rows)
        if self._in_order:
            pairs = self._with_time(pairs, self._in_order, out)
        loop = self._generator_loop if self._generates else self._loop
        if self._undo is not None:
            loop = partial(self._undoing_loop, self._undo)
        while True:
            try:
                loop(pairs, out, marks)
                break
            except CausalError:
                raise
            except Exception as problem:
                if self._undo is not None:
                    self._undo.undo()
                if marks is not None:
                    marks.append(len(out))
                index = last_index(records, rows)
                self.failed(index, records[index], problem, self._shown_key())
        self._marks = marks or []
        self._records = ()
        return out

    def _with_time(
        self, pairs: Iterable[tuple[Any, Any]], time_of: Callable[[Any], Any], out: list[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """Fire the timers due by a record's time before that record, so that results do not depend on watermarks."""
        for key, record in pairs:
            time_ns = ns_of(time_of(record))
            self._fire_event_timers(time_ns, out)
            self._declared.advance("event", time_ns)
            yield key, record

    def _warm(self, keys: Sequence[Any] | None) -> None:
        """Load the state of all of a batch's keys with one lookup per store."""
        for table in self._cold:
            if table.cold is not None:
                table.cold.touch([None] if keys is None else keys)

    def _generator_loop(self, pairs: Iterable[tuple[Any, Any]], out: list[Any], marks: list[int] | None) -> None:
        ctx, states, process, append = self._ctx, self._states, self._operator.process, out.append
        for key, record in pairs:
            ctx.key = key
            ctx.state = state = states[key]
            for output in process(record, ctx):  # type: ignore[union-attr]
                # The same as `ownership.kept`, but inlined: records that were yielded must not change when the state
                # changes.
                try:
                    if type(output) is tuple:
                        hash(output)
                    elif type(output) is dict and not is_tracked(output):
                        hash(tuple(output.values()))
                        output = output.copy()
                    else:
                        output = copy_containers(output)
                except (TypeError, ValueError):
                    output = copy_containers(output)
                append(output)
            if ctx.state is not state:
                raise TypeError(_REPLACED)
            if marks is not None:
                marks.append(len(out))

    def _loop(self, pairs: Iterable[tuple[Any, Any]], out: list[Any], marks: list[int] | None) -> None:
        ctx, states, process, append = self._ctx, self._states, self._operator.process, out.append
        for key, record in pairs:
            ctx.key = key
            ctx.state = state = states[key]
            result = process(record, ctx)
            if result is not None:
                if type(result) is not list:
                    check_records(result, self.name)
                for output in result:
                    append(output if type(output) in SCALARS else copy_containers(output))
            if ctx.state is not state:
                raise TypeError(_REPLACED)
            if marks is not None:
                marks.append(len(out))

    def _undoing_loop(
        self, undo: Undo, pairs: Iterable[tuple[Any, Any]], out: list[Any], marks: list[int] | None
    ) -> None:
        """Process records like `_loop`, but undo all changes for any record on which the operator raises."""
        ctx, states, process = self._ctx, self._states, self._operator.process
        for key, record in pairs:
            ctx.key = key
            ctx.state = state = states[key]
            undo.begin(state, out)
            self._emit(process(record, ctx), out)
            if ctx.state is not state:
                raise TypeError(_REPLACED)
            undo.end()
            if marks is not None:
                marks.append(len(out))

    def _emit(self, result: Iterable[Any] | None, out: list[Any]) -> None:
        if result is None:
            return
        check_records(result, self.name)
        if self._undo is not None and self._undo.active and self.leaves:
            # Records are checked here, where the changes made for them can still be undone.
            result = map(self.failures.carried, result)
        out.extend(map(copy_containers, result))

    def _run_batch(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        batch = self._batches
        batch_keys = [None] * len(records) if keys is None else keys
        out: list[Any] = []
        self._ctx.key = None
        try:
            self._emit(batch(records, batch_keys, self._ctx) if batch else None, out)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, records, problem)
        # With several records, it is unknown which of them caused an output.
        self.traces, self._marks = len(records) == 1, [len(out)]
        return out

    def source_of(self, index: int) -> int:
        return bisect_right(self._marks, index)

    def _shown_key(self) -> Any:
        return self._ctx.key if self._keyed else NO_KEY

    # Called by the context.

    def event_time_ns(self) -> int | None:
        if self._timer_ns is not None:
            return self._timer_ns
        if self._time_of is None or not self._records:
            return None
        index = last_index(self._records, self._rows)
        if index != self._record_index:
            self._record_ns, self._record_index = ns_of(self._time_of(self._records[index])), index
        return self._record_ns

    def _age_ns(self) -> int | None:
        """Return the time by which ages are measured: event time, or the watermark if there is no event time."""
        time_ns = self.event_time_ns()
        return self._age_mark_ns if time_ns is None else time_ns

    def watermark_ns(self) -> int | None:
        """Return the event time of the record if records arrive in order, otherwise the watermark."""
        time_ns = self.event_time_ns() if self._ordered else None
        return self._mark_ns if time_ns is None else time_ns

    def put_aside(self, tag: str, record: Any) -> None:
        if type(tag) is not str:
            raise TypeError(f"the tag of a side output must be a str, not {type(tag).__name__}")
        if tag in self._tags:
            if self._undo is not None and self._undo.active and tag in self.tags_leaving:
                self.failures.carried(record)
            put = self.aside.setdefault(tag, [])
            put.append(copy_containers(record))
            if self._undo is not None:
                self._undo.note(put.pop)
        else:
            self._count_unread(tag)

    def _count_unread(self, tag: str) -> None:
        reason = f"{_UNREAD} {tag!r:.60}"
        if reason not in self.counts and sum(known.startswith(_UNREAD) for known in self.counts) >= _TAGS_COUNTED_MAX:
            reason = f"{_UNREAD} of other tags"
        self.count(reason, 1)
        if self._undo is not None:
            self._undo.note(partial(self._uncount, reason))

    def _uncount(self, reason: str) -> None:
        self.counts[reason] -= 1
        if not self.counts[reason]:
            del self.counts[reason]

    # Events.

    def open(self) -> None:
        self._ctx.key = _IN_OPEN if len(self._declared) else None
        try:
            self._operator.open(self._ctx)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)
        self._ctx.key = None

    def begin(self, services: Services) -> None:
        self._ctx.begin(services)
        if self._ages:
            self._declared.begin()

    def end(self) -> None:
        self._ctx.end()
        if self._fired:
            self._fired = False
            self._timers.end()
            self._event_timers.end()
        if self._ages:
            self.count("expired", self._declared.expired())
        for table in self._cold:
            table.shrink()

    def next_ns(self) -> int | None:
        timer_ns, tick_ns = self._timers.next_ns(), self._declared.next_ns()
        if timer_ns is None or tick_ns is None:
            return tick_ns if timer_ns is None else timer_ns
        return min(timer_ns, tick_ns)

    def due(self, due_ns: int) -> list[Due]:
        entries: list[Due] = [(at_ns, 0, number, (key, name)) for at_ns, number, key, name in self._timers.due(due_ns)]
        tick_ns = self._declared.next_ns()
        if tick_ns is not None and tick_ns <= due_ns:
            entries.append((tick_ns, _TICK, 0, due_ns))
        return entries

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        out: list[Any] = []
        for at_ns, what, sequence, entry in entries:
            if what == _TICK:
                self._declared.advance("processing", entry)
                continue
            key, name = entry
            while (earlier := self._timers.pop(at_ns - 1)) is not None:
                self._fire_timer(earlier, out)
            if self._timers.take(key, name, sequence):
                self._fire_timer((at_ns, sequence, key, name), out)
        return out

    def _fire_timer(self, due: Timer, out: list[Any]) -> None:
        at_ns, _, key, name = due
        self._fired = True
        self._timers.firing(due)
        self._call_timer(key, name, {"timer": name, "at_s": seconds_of(at_ns)}, out)
        self._timers.fired()

    def _call_timer(self, key: Any, name: str, record: dict[str, Any], out: list[Any]) -> None:
        self._table.touch((key,))
        self._one(key, record, partial(self._operator.on_timer, name, self._ctx), out)

    def advance(self, mark_ns: int) -> list[Any]:
        """Fire the event-time timers that are due, then remove state that no future record can read."""
        self._mark_ns = mark_ns if self._mark_ns is None else max(self._mark_ns, mark_ns)
        out: list[Any] = []
        self._fire_event_timers(mark_ns, out)
        if mark_ns != END_NS:
            self._age_mark_ns = self._mark_ns
            self._declared.advance("event", self._mark_ns)
        elif self._age_mark_ns is not None:
            self._declared.finish(self._age_mark_ns)
        return out

    def _fire_event_timers(self, until_ns: int, out: list[Any]) -> None:
        """Fire due timers one by one, including those that timers set, so event time never decreases in `on_timer`."""
        timers, at_end = self._event_timers, until_ns == END_NS
        while (due := timers.pop(until_ns)) is not None:
            at_ns, _, key, name = due
            self._fired = True
            if timers.firing(due, END_NS if at_end else None) > _CHAIN_MAX:
                raise OperatorFailed(
                    f"operator {self.name!r}{f', key {shown(key)}' if self._keyed else ''}: its event-time "
                    f"timers keep setting one another ({_CHAIN_MAX} times "
                    f"{'after the end' if at_end else 'for the same time'}); set them later than ctx.event_time(), "
                    "and stop at some point"
                )
            self._timer_ns = at_ns
            self._call_timer(key, name, {"timer": name, "at_s": seconds_of(at_ns), "clock": "event"}, out)
            timers.fired()
            self._timer_ns = None

    def finish(self) -> list[Any]:
        out: list[Any] = []
        if self._finishes:
            keys = self._ordered_keys() if self._keyed else [None]
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                part = keys[start : start + _KEYS_AT_ONCE]
                self._warm(part)
                self._table.touch(part)
                for key in part:
                    self._one(key, None, partial(self._operator.finish, self._ctx), out)
                for table in self._cold:
                    table.shrink()
        return out

    def _ordered_keys(self) -> list[Any]:
        """Return the keys that have state, in an order that depends neither on history nor on restores."""
        keys = dict.fromkeys([key for key, state in self._states.items() if state])
        keys.update(dict.fromkeys(self._declared.keys()))
        try:
            return sorted(keys, key=encode)
        except NotCarried as problem:
            self.failures.stop(self.name, None, problem)

    def _one(self, key: Any, record: Any, ask: Callable[[], Iterable[Any] | None], out: list[Any]) -> None:
        ctx = self._ctx
        ctx.key = key
        ctx.state = state = self._states[key]
        undo = self._undo
        if undo is not None:
            undo.begin(state, out)
        try:
            self._emit(ask(), out)
            if ctx.state is not state:
                raise TypeError(_REPLACED)
            if undo is not None:
                undo.end()
        except CausalError:
            raise
        except Exception as problem:
            if undo is not None:
                undo.undo()
            self.failures.failed(self.name, self._shown_key(), None, record, problem)

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._table, self._timers.table, self._event_timers.table, *self._declared.tables]

    def header(self) -> dict[str, Any]:
        header = super().header()
        if len(self._declared):
            header["states"] = self._declared.header()
        if self._mark_ns is not None:
            header["mark"] = self._mark_ns
        return header

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        self._declared.begin()
        return super().freeze(full)

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the state of a key: `state`, declared states by attribute name, and `timers` by timer name."""
        contents: dict[str, Any] = {}
        state = self._states.get(key)
        if state:
            contents["state"] = copy_containers(state)
        contents.update(self._declared.shown(key))
        timers = self._timers.table.values.get(key)
        if timers:
            contents["timers"] = {name: seconds_of(at_ns) for name, (at_ns, _) in timers.items()}
        timers = self._event_timers.table.values.get(key)
        if timers:
            contents["event-timers"] = {name: seconds_of(at_ns) for name, (at_ns, _) in timers.items()}
        return contents

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge headers as every stage does, but use the time of the furthest task, also for measuring ages."""
        marks_ns = [header["mark"] for header in headers if "mark" in header]
        if marks_ns:
            headers = [{**header, "mark": max(marks_ns)} for header in headers]
        state_headers = [header["states"] for header in headers if "states" in header]
        if not state_headers:
            return super().merge_headers(headers)
        states = self._declared.merge_headers(state_headers)
        return super().merge_headers([{**header, "states": states} for header in headers])

    def changed(self, epoch: int) -> None:
        self._timers.check()
        self._event_timers.check()

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._declared.load_header(header.get("states", {}))
        self._mark_ns = self._age_mark_ns = header.get("mark")
        self._timers.restored()
        self._event_timers.restored()


def _without_event_time(node: Node) -> str:
    """Return why the operator cannot set event-time timers (no watermark would fire them); empty if it can."""
    without = next((edge.source for edge in node.edges if edge.side == LEFT and not watermarked(edge.source)), None)
    if without is None:
        return ""
    return (
        f"{node.where}: operator {node.name!r} sets a timer by event time, but {without.name!r} has none; "
        'put .watermarks(name, time) before it, or give clock="processing"'
    )
