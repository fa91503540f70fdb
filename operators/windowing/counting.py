"""Count windows: the last n records of a key, told each time that so many more have come."""

from __future__ import annotations

from itertools import repeat
from operator import length_hint
from typing import Any

from causal.errors import CausalError
from operators.failures import NO_KEY, Failures
from operators.ownership import own
from operators.stages import Stage, check_records
from operators.state import Table
from operators.windowing.aggregates import Aggregate
from operators.windowing.assigners import CountWindow
from operators.windows import Window, WindowFunction

_NOTHING: Any = object()


class CountWindowStage(Stage):
    """`window(name, CountWindow(n, every), contents)`: of a key `[records so far, what is held if any is]`.

    Where windows share no records an aggregate holds its accumulator, otherwise the last n records are held.  A
    window's bounds are numbers of records of its key; what is not complete at the end of the input is not told.
    """

    traces = False

    def __init__(
        self,
        name: str,
        ordinal: int,
        failures: Failures,
        contents: Aggregate[Any, Any] | WindowFunction,
        keyed: bool,
        key_groups: int,
        assigner: CountWindow,
    ) -> None:
        super().__init__(name, ordinal, failures)
        self._told: Aggregate[Any, Any] | WindowFunction = contents
        self._keyed = keyed
        self._n, self._every = assigner.n, assigner.every
        self._folds = isinstance(contents, Aggregate) and self._n == self._every
        self._table = Table(f"{name}:counts", name, key_groups, {}, drop_empty=False)

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        out: list[Any] = []
        self._table.touch((None,) if keys is None else dict.fromkeys(keys))
        rest = iter(records)
        feed = zip(repeat(None) if keys is None else keys, rest)
        while True:
            key = None
            try:
                for key, record in feed:
                    self._put(key, record, out)
                return out
            except CausalError:
                raise
            except Exception as problem:
                index = len(records) - length_hint(rest) - 1
                self.failed(index, records[index], problem, key if self._keyed else NO_KEY)

    def _put(self, key: Any, record: Any, out: list[Any]) -> None:
        told, entry = self._told, self._table.values.get(key)
        count, held = (0, _NOTHING) if entry is None else entry if len(entry) == 2 else (entry[0], _NOTHING)
        if self._folds and isinstance(told, Aggregate):
            if held is _NOTHING:
                held = told.initial()
            held = told.add(own(held) if self.failures.set_aside else held, record)
        else:
            if self.failures.set_aside and isinstance(told, Aggregate):
                told.add(told.initial(), own(record))  # a record that it refuses is in none of its windows
            if held is _NOTHING:
                held = []
            held.append(record)
        count += 1
        if count % self._every:
            self._table.values[key] = [count, held]
            return
        keeps = self._n > self._every
        if keeps:
            del held[: -self._n]
        self._table.values[key] = [count, held] if keeps else [count]
        window = Window(max(0, count - self._n), count)
        before = len(out)
        try:
            self._tell(key, own(held) if keeps else held, window, out)
        except CausalError:
            raise
        except Exception as problem:
            del out[before:]
            letter = {"window": [window.start, window.end]}
            self.failures.failed(self.name, key if self._keyed else NO_KEY, None, letter, problem)

    def _tell(self, key: Any, held: Any, window: Window, out: list[Any]) -> None:
        told = self._told
        if not isinstance(told, Aggregate):
            result = told(key, held, window)
            if result is not None:
                check_records(result, self.name)
                out.extend(map(own, result))
            return
        if not self._folds:
            rows: list[Any] = held
            held = told.initial()
            for row in rows:
                held = told.add(held, row)
        value = held if told.result is None else told.result(held)
        out.append((key, own(value), window.start, window.end))

    def tables(self) -> list[Table]:
        return [self._table]
