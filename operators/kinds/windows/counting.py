"""Count windows: the last n records of a key, emitted each time a given number of further records has arrived."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from causal.errors import CausalError
from operators.graph import Node
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import CountWindow
from operators.kinds.windows.task_windows import Window, WindowFunction, results_of
from operators.records.ownership import copy_containers
from operators.records.storable import stored
from operators.stage.failures import NO_KEY
from operators.stage.scope import Scope
from operators.stage.stages import Stage
from operators.state.keyed_tables import KeyedTable

_NOTHING: Any = object()


class CountWindowStage(Stage):
    """`window(name, CountWindow(n, every), contents)`; its state by key is `[number of records, contents if any]`.

    The contents are an accumulator if windows share no records and use an aggregate; otherwise they are the last n
    records.  The bounds of a window are record numbers of its key; an incomplete window at the end of the input is not
    emitted.
    """

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._subject: Aggregate[Any, Any] | WindowFunction = node.subject
        self._keyed = node.keyed
        assigner: CountWindow = node.options["assigner"]
        self._n, self._every = assigner.n, assigner.every
        self._folds = isinstance(self._subject, Aggregate) and self._n == self._every
        self._table = KeyedTable(f"{node.name}:counts", node.name, scope.config.key_groups)

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        out: list[Any] = []
        self._table.touch((None,) if keys is None else dict.fromkeys(keys))
        for index, (key, record) in enumerate(zip(repeat(None) if keys is None else keys, records)):
            try:
                self._put(key, record, out)
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, record, problem, key if self._keyed else NO_KEY)
        return out

    def _put(self, key: Any, record: Any, out: list[Any]) -> None:
        subject, entry = self._subject, self._table.values.get(key)
        count, content = (0, _NOTHING) if entry is None else entry if len(entry) == 2 else (entry[0], _NOTHING)
        if self._folds and isinstance(subject, Aggregate):
            if content is _NOTHING:
                content = subject.initial()
            content = subject.add(copy_containers(content) if self.failures.set_aside else content, record)
            if self.failures.set_aside:
                stored(content, "its accumulator")
        else:
            if self.failures.set_aside and isinstance(subject, Aggregate):
                # A record that the aggregate refuses must not enter any window.
                subject.add(subject.initial(), copy_containers(record))
            if content is _NOTHING:
                content = []
            content.append(record)
        count += 1
        if count % self._every:
            self._table.values[key] = [count, content]
            return
        keeps = self._n > self._every
        if keeps:
            del content[: -self._n]
        self._table.values[key] = [count, content] if keeps else [count]
        window = Window(max(0, count - self._n), count)
        before = len(out)
        try:
            self._emit(key, copy_containers(content) if keeps else content, window, out)
        except CausalError:
            raise
        except Exception as problem:
            del out[before:]
            letter = {"window": [window.start, window.end]}
            self.failures.failed(self.name, key if self._keyed else NO_KEY, None, letter, problem)

    def _emit(self, key: Any, content: Any, window: Window, out: list[Any]) -> None:
        subject = self._subject
        if not isinstance(subject, Aggregate):
            out += results_of(subject, key, content, window, self.name)
            return
        if not self._folds:
            rows: list[Any] = content
            content = subject.initial()
            for row in rows:
                content = subject.add(content, row)
        value = content if subject.result is None else subject.result(content)
        out.append((key, copy_containers(value), window.start, window.end))

    def tables(self) -> list[KeyedTable]:
        return [self._table]
