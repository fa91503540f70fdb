"""`delivery="speculative"`: records are processed on arrival, and revisions correct the output if an older one arrives.

For each key, the records above the watermark are kept, each with the state before it.  If a record arrives with an
earlier time than some of these, it is processed on the state before them, and they are then processed again.  The
differences in their output are sent as revisions `(id, old, new)`. The final rows are thus the same as with
`delivery="ordered"`, but without its delay.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NoReturn

from causal.errors import CausalError, OperatorFailed, PipelineError, invariant
from causal.ports import Services
from causal.records.values import NotCarried, encode
from operators.graph import Node
from operators.kinds.ordering.hold import LATE
from operators.kinds.tables.unsettled import RowStage
from operators.records.ownership import SCALARS, all_scalar, copy_containers
from operators.records.seconds import seconds_of
from operators.records.storable import stored
from operators.stage.context import Context
from operators.stage.event_times import times_of
from operators.stage.failures import NO_KEY
from operators.stage.floors import Reached
from operators.stage.operator import Operator
from operators.stage.scope import Scope
from operators.stage.stages import check_records
from operators.stage.state_binding import declared
from operators.state.due_entries import Slot
from operators.state.keyed_tables import KeyedTable, States, StateTable
from operators.state.slots import Slots
from operators.state.timers import Timers

Revision = tuple[Any, ...]
"""(id, old, new); id = (event time in s, task of the operator, input channel, position there, number of the output).

The task and the `Arrival.channel` are those where the record arrived, even if another task has taken over its key.
"""
_SLOT_WITHOUT_TASK = 3
Entry = list[Any]
"""[a record that may be processed again, the state before it, its outputs, whether it failed]"""


def time_of_revision(revision: Revision) -> float:
    """Return the event time of a revision, which is the event time of its record."""
    return float(revision[0][0])


class _Refusing:
    """The services during an event whose record may be processed twice: they refuse all nondeterministic calls."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self.services: Services | None = None

    def replaying(self) -> bool:
        return self.services is not None and self.services.replaying()

    def __getattr__(self, name: str) -> NoReturn:
        what = {"now_ns": "the clock", "call": "an answer of the outside", "user": "an answer"}.get(name, "chance")
        raise OperatorFailed(
            f"operator {self._operator!r} is speculative: it may process a record twice, so it cannot ask for {what}; "
            'use delivery="ordered"'
        )


class SpeculativeStage(RowStage):
    """One user operator in one task; it is the first stage in the task, so that its records have positions."""

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        name, groups = node.name, scope.config.key_groups
        self._operator: Operator = copy.copy(node.subject)
        self._keyed = node.keyed
        self._time_of = _known_time(node, scope)
        self._arrival = scope.arrival
        self._active = scope.capture
        self._aside = LATE in scope.tags
        self._number = int(scope.task.rpartition("/")[2])
        self._states = States()
        self._table = StateTable(name, name, groups, self._states)
        self._since = Slots(f"{name}:since", name, groups, lambda slot: slot[0] + 1, by_key=True)
        refusal = f'operator {name!r} is speculative, so it cannot set timers; use delivery="ordered"'
        self._begin_settled(node, scope, itemgetter(0))
        timers = Timers(KeyedTable(f"{name}:timers", name, groups), scope.numbers, refusal)
        self._ctx = Context(name, scope.task, self._states, timers, timers, self)
        self._refusing: Any = _Refusing(name)
        self._time_ns: int | None = None
        self._reached = Reached(groups, node.keyed)

    # Called by the context.

    def event_time_ns(self) -> int | None:
        return self._time_ns

    def watermark_ns(self) -> int | None:
        return self._reached.mark_ns

    def put_aside(self, tag: str, record: Any) -> None:
        raise OperatorFailed(
            f"operator {self.name!r} is speculative: it may process a record twice, so it cannot put records aside; "
            'use delivery="ordered"'
        )

    # Events.

    def open(self) -> None:
        try:
            self._operator.open(self._ctx)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)

    def begin(self, services: Services) -> None:
        self._refusing.services = services
        self._ctx.begin(self._refusing)

    def end(self) -> None:
        self._ctx.end()

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        arrival, out = self._arrival, list[Revision]()
        times, lost = times_of(
            self._time_of, records, lambda index, problem: self.failed(index, records[index], problem)
        )
        differs, marks = self._reached.differs, (arrival.mark_ns, self._reached.mark_ns)
        known_ns = max([mark_ns for mark_ns in marks if mark_ns is not None], default=None)
        untimed, remaining = dict.fromkeys(lost), iter(times)
        services, self._active.services = self._active.services, self._refusing
        for index, record in enumerate(records):
            if index in untimed:
                continue
            time_ns, key = next(remaining), None if keys is None else keys[index]
            reached_ns = self._reached.of(key) if differs else known_ns
            if (known_ns is not None and time_ns < known_ns) or (reached_ns is not None and time_ns < reached_ns):
                self._late(record)
            else:
                self._place(key, (time_ns, arrival.channel, arrival.first + index, self._number), record, out)
        self._active.services = services
        return out

    def _late(self, record: Any) -> None:
        self.count(LATE, 1)
        if self._aside:
            self.aside.setdefault(LATE, []).append(record)

    def _place(self, key: Any, slot: Slot, record: Any, out: list[Revision]) -> None:
        """Process a record at its place in event time, then process the later records of its key again."""
        values = self._since.values
        slots = self._since.of(key)
        behind = slots[bisect_right(slots, slot) :]
        pairs = [(key, slot), *((key, later) for later in behind)]
        self._table.touch((key,))
        self._since.touch(pairs)
        if behind:
            self._states[key] = copy_containers(values[pairs[1]][1])
            self.count("revised", len(behind))
        self._run(key, slot, record, None, out)
        self._since.added(pairs[:1])
        for later in behind:
            known = values[key, later]
            self._run(key, later, known[0], known, out)

    def _run(self, key: Any, slot: Slot, record: Any, known: Entry | None, out: list[Revision]) -> None:
        """Process a record on the current state; send differences from its earlier outputs, `known`, as revisions."""
        before = copy_containers(self._states[key])
        outputs, problem = self._process(key, slot, copy_containers(record))
        if problem is not None:  # a record that fails has no output
            outputs = []
            state = self._states[key]
            state.clear()
            state.update(copy_containers(before))
        if problem is not None and not (known and known[3]):
            self.failures.failed(self.name, key if self._keyed else NO_KEY, None, record, problem)
        self._since.values[key, slot] = [record, before, outputs, problem is not None]
        for number, (old, new) in enumerate(zip_longest(known[2] if known else (), outputs)):
            if old is not new and (known is None or encode(old) != encode(new)):
                name = (*self._named(slot), number)
                sent = self._taken(key, name) if self.unsettled.values else ()
                out.append((name, copy_containers(old), copy_containers(new), *sent))

    def _taken(self, key: Any, name: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the value sent for an unsettled output, which this call settles; return nothing for other outputs."""
        if (key, name) not in self.unsettled.values:
            return ()
        self.unsettled.touch(((key, name),))
        return (self.unsettled.values.pop((key, name)),)

    def _named(self, slot: Slot) -> tuple[Any, ...]:
        """Return the id of a record; slots that earlier versions wrote lack the task."""
        time_ns, channel, position, task = slot if len(slot) > _SLOT_WITHOUT_TASK else (*slot, self._number)
        return seconds_of(time_ns), task, channel, position

    def _process(self, key: Any, slot: Slot, record: Any) -> tuple[list[Any], Exception | None]:
        ctx, outputs = self._ctx, list[Any]()
        ctx.key, self._time_ns = key, slot[0]
        ctx.state = state = self._states[key]
        try:
            result = self._operator.process(record, ctx)
            if result is not None:
                check_records(result, self.name)
                outputs.extend(map(copy_containers, result))
            if ctx.state is not state:
                raise TypeError("ctx.state was replaced; change it in place")
            if not all(map(_plain, outputs)):
                encode(outputs)
        except NotCarried as problem:
            return [], problem
        except CausalError:
            raise
        except Exception as problem:
            return outputs, problem
        try:
            if self.failures.set_aside and state:
                stored(state, "ctx.state")
            if self.leaves:
                for output in outputs:
                    self.failures.carried_row((*self._named(slot), 0), output)
        except (NotCarried, ValueError) as problem:
            return [], problem
        return outputs, None

    def advance(self, mark_ns: int) -> list[Any]:
        """Drop the records that are older than the watermark, because their outputs can no longer change."""
        self._reached.advance(mark_ns)
        taken = self._since.take(mark_ns)
        if self.unsettled.values:
            self._forget_sent((key, name) for (key, slot), entry in taken for name, _ in self._outputs(slot, entry))
        return []

    # The outputs as the rows of a table; rows above the watermark may still be revised.

    def _outputs(self, slot: Slot, entry: Entry) -> Iterable[tuple[Any, Any]]:
        return (((*self._named(slot), number), output) for number, output in enumerate(entry[2]))

    def rows(self) -> Iterable[tuple[Any, Any]]:
        return (output for (_, slot), entry in self._since.values.items() for output in self._outputs(slot, entry))

    def sent(self) -> dict[Any, dict[str, Any]]:
        return {name: sent for (_, name), sent in self.unsettled.values.items()}

    def settle(self, sent: dict[Any, dict[str, Any]]) -> None:
        names = (
            (key, name) for (key, slot), entry in self._since.values.items() for name, _ in self._outputs(slot, entry)
        )
        super().settle({place: sent[place[1]] for place in names if place[1] in sent})

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._table, self._since.table, self.unsettled]

    def header(self) -> dict[str, Any]:
        return self._reached.header()

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._reached.load(header)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self._reached.merged(headers)


def _plain(value: Any) -> bool:
    """Return whether a cheap test shows that a value can be encoded."""
    return type(value) in SCALARS or (type(value) is tuple and all_scalar(map(type, value)))


def _known_time(node: Node, scope: Scope) -> Callable[[Any], Any]:
    time_of = scope.time_of(node)
    invariant(time_of is not None, "a speculative operator has event time", operator=node.name)
    return time_of  # type: ignore[return-value]


def check_speculative(node: Node) -> None:
    """Refuse an operator that must not process a record twice.

    Raises:
        PipelineError: the operator may do more than return records and change `ctx.state`.
    """
    kind = type(node.subject)
    wrong = {
        "on_timer": kind.on_timer is not Operator.on_timer,
        "finish": kind.finish is not Operator.finish,
        "process_batch": hasattr(node.subject, "process_batch"),
        "declared state": bool(declared(node.subject)),
        'state="disk"': node.options.get("state") == "disk",
    }
    for what, is_there in wrong.items():
        if is_there:
            raise PipelineError(
                f"{node.where}: operator {node.name!r} is speculative: it may process a record twice, so it cannot "
                f'have {what}: use delivery="ordered"'
            )
