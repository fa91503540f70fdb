"""User operators as batch loops: state, timers and answers of the world around each call of `process`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from gc import is_tracked
from inspect import isgeneratorfunction
from itertools import repeat
from operator import length_hint
from typing import Any

from causal.errors import CausalError
from causal.ports import Services
from causal.values import NotCarried, encode
from operators.context import Context
from operators.failures import NO_KEY, Failures
from operators.operator import Operator
from operators.ownership import SCALARS, own
from operators.stages import Due, Stage, check_records
from operators.state import States, Table
from operators.timers import Timers

_REPLACED = "ctx.state was assigned to; change it in place: ctx.state.clear(), ctx.state.update(...)"


class ProcessStage(Stage):
    """`process(name, operator)`: one user operator in one task."""

    def __init__(
        self,
        name: str,
        ordinal: int,
        failures: Failures,
        operator: Operator,
        task: str,
        keyed: bool,
        key_groups: int,
        sequence: Callable[[], int],
    ) -> None:
        """
        Args:
            operator: this task's own instance.
            sequence: numbers timers in the order in which the chain's operators set them.
        """
        super().__init__(name, ordinal, failures)
        self._operator = operator
        self._keyed = keyed
        self._states = States()
        self._table = Table(name, name, key_groups, self._states)
        refusal = ""
        if type(operator).on_timer is Operator.on_timer:
            refusal = f"{type(operator).__name__} sets a timer; define on_timer(self, name, ctx)"
        timers = Table(f"{name}:timers", name, key_groups, {})
        self._timers = Timers(timers, sequence, refusal)
        self._ctx = Context(name, task, self._states, self._timers)
        self._finishes = type(operator).finish is not Operator.finish
        self._generates = isgeneratorfunction(operator.process)
        self._batches: Callable[..., Any] | None = getattr(operator, "process_batch", None)
        self._marks: list[int] = []

    # Records.

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        self._table.touch((None,) if keys is None else keys)
        if self._batches is not None:
            return self._run_batch(records, keys)
        out: list[Any] = []
        marks: list[int] | None = [] if self.traced else None
        rows = iter(records)
        pairs = zip(repeat(None) if keys is None else keys, rows)
        loop = self._generator_loop if self._generates else self._loop
        while True:
            try:
                loop(pairs, out, marks)
                break
            except CausalError:
                raise
            except Exception as problem:
                if marks is not None:
                    marks.append(len(out))
                index = len(records) - length_hint(rows) - 1
                self.failed(index, records[index], problem, self._shown_key())
        self._marks = marks or []
        return out

    def _generator_loop(self, pairs: Iterable[tuple[Any, Any]], out: list[Any], marks: list[int] | None) -> None:
        ctx, states, process, append = self._ctx, self._states, self._operator.process, out.append
        for key, record in pairs:
            ctx.key = key
            ctx.state = state = states[key]
            for made in process(record, ctx):  # type: ignore[union-attr]
                # What is yielded must not change with the state: tuples that can be hashed and dicts
                # that the collector need not track hold nothing that could.
                if type(made) is tuple:
                    try:
                        hash(made)
                    except TypeError:
                        made = own(made)
                elif type(made) is dict and not is_tracked(made):
                    made = made.copy()
                else:
                    made = own(made)
                append(made)
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
                for made in result:
                    append(made if type(made) in SCALARS else own(made))
            if ctx.state is not state:
                raise TypeError(_REPLACED)
            if marks is not None:
                marks.append(len(out))

    def _emit(self, result: Iterable[Any] | None, out: list[Any]) -> None:
        if result is None:
            return
        check_records(result, self.name)
        out.extend(map(own, result))

    def _run_batch(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        batch = self._batches
        given = [None] * len(records) if keys is None else keys
        out: list[Any] = []
        self._ctx.key = None
        try:
            self._emit(batch(records, given, self._ctx) if batch else None, out)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, records, problem)
        # Which record an output came from is not known: the last one stands for all.
        self._marks = [0] * (len(records) - 1) + [len(out)]
        return out

    def source_of(self, index: int) -> int:
        return bisect_right(self._marks, index)

    def _shown_key(self) -> Any:
        return self._ctx.key if self._keyed else NO_KEY

    # Events.

    def open(self) -> None:
        try:
            self._operator.open(self._ctx)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)

    def begin(self, services: Services) -> None:
        self._ctx.begin(services)

    def end(self) -> None:
        self._ctx.end()

    def next_ns(self) -> int | None:
        return self._timers.next_ns()

    def due(self, due_ns: int) -> list[Due]:
        return [(at_ns, 0, sequence, (key, name)) for at_ns, sequence, key, name in self._timers.due(due_ns)]

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        out: list[Any] = []
        for at_ns, _, sequence, (key, name) in entries:
            if self._timers.take(key, name, sequence):
                self._table.touch((key,))
                record = {"timer": name, "at_s": at_ns / 1e9}
                self._one(key, record, partial(self._operator.on_timer, name, self._ctx), out)
        return out

    def finish(self) -> list[Any]:
        out: list[Any] = []
        if self._finishes:
            keys = self._ordered_keys() if self._keyed else [None]
            self._table.touch(keys)
            for key in keys:
                self._one(key, None, partial(self._operator.finish, self._ctx), out)
        return out

    def _ordered_keys(self) -> list[Any]:
        """Keys that have state, in an order that depends neither on history nor on restores."""
        try:
            return sorted([key for key, state in self._states.items() if state], key=encode)
        except NotCarried as problem:
            self.failures.stop(self.name, None, problem)

    def _one(self, key: Any, record: Any, ask: Callable[[], Iterable[Any] | None], out: list[Any]) -> None:
        ctx = self._ctx
        ctx.key = key
        ctx.state = state = self._states[key]
        try:
            self._emit(ask(), out)
            if ctx.state is not state:
                raise TypeError(_REPLACED)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.failed(self.name, self._shown_key(), None, record, problem)

    # Snapshots.

    def tables(self) -> list[Table]:
        return [self._table, self._timers.table]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._timers.restored()
