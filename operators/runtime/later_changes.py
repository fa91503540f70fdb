"""Conversion of what has changed since a savepoint that was converted before.

The state of an operator has the same encoding in the old and the new version, unless an option has changed its meaning.
So the fragments that the old tasks have written since the savepoint are passed on unchanged, or divided by key group;
only their headers are converted, by the same steps as those of a savepoint. A new task that has loaded its first
snapshot and then its increment has the state that the conversion of the later checkpoint would give it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from causal.errors import CausalError
from causal.records.values import decode, encode
from causal.topology import Task
from operators.engine.chain import FusedChain
from operators.kinds.joins.timelines import Timelines
from operators.kinds.tables.readers import SUPPRESS, keeps_rows
from operators.kinds.tables.unsettled import RowStage
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Fragments, Rescaling, Share, read
from operators.stage.stages import Stage
from operators.state.fragments import divided
from operators.state.keyed_tables import UNDIVIDED
from operators.state.snapshot_parts import header_part, read_part, table_part
from operators.state.timers import TimerTable

_OF_ONE_VALUE = frozenset(("table", "aggregate_table", "window_table", "aggregate"))
_OF_TABLES = _OF_ONE_VALUE | {"table_join", SUPPRESS}
"""The kinds of operators that keep rows, each of which is derived from one value of their state or from several."""


def later_changes(earlier: Rescaling, saved: Sequence[Saved]) -> tuple[Rescaling, Mapping[str, Sequence[bytes]]] | str:
    """Convert what has changed since the savepoint that `earlier` has converted.

    Args:
        earlier: its method `chains` must have been called.
        saved: the tasks at a later checkpoint, each with the files that follow those of the savepoint.

    Returns: the conversion of the later checkpoint, for its cuts, and for each task of the new plan the parts of an
    increment that follow the cut; or the reason why everything must be converted again.
    """
    if earlier.obstacle:
        return earlier.obstacle
    try:
        changes = _LaterChanges(earlier, saved)
        return changes, changes.chains()
    except (CausalError, _Inseparable) as problem:
        return str(problem)


class _Inseparable(Exception):
    """The changes cannot be converted without the state that they change."""


class _LaterChanges(Rescaling):
    """The conversion of a checkpoint, without the state that has not changed since `earlier`."""

    def __init__(self, earlier: Rescaling, saved: Sequence[Saved]) -> None:
        super().__init__(
            earlier._topology,
            [each if each.files else replace(each, files=(_last_header(earlier, each),)) for each in saved],
            earlier._plan,
            earlier._key_groups,
            earlier._allow_dropped,
            earlier._written,
        )
        self._headers = [_header(each) for each in self._saved]
        if any(read(file)[0]["full"] for each in self._saved for file in each.files):
            raise _Inseparable("a task has written a complete snapshot since then")
        self._restored: tuple[FusedChain, dict[str, Any], Fragments] | None = None
        """The chain that is being converted, with its header and the changes in its tables."""

    def _row_files(self) -> Sequence[Sequence[Sequence[bytes]]]:
        """Return the changes in tables of rows as if they were all rows; each row is settled on its own."""
        headers = [_header(each) for each in self._saved]
        known = {
            name: kind for header in headers for name, kind in header.get("kinds", {}).items() if kind in _OF_TABLES
        }
        rows = {node.name: node.kind for node in self._plan.operators if keeps_rows(node)}
        if rows and (known != rows or not _OF_ONE_VALUE.issuperset(rows.values())):
            raise _Inseparable("rows of tables depend on state that has not changed")
        tables = {
            table.name
            for task in self._plan.subtasks.tasks
            for stage in self._plan.subtask_chain(task.index).stages
            if isinstance(stage, RowStage)
            for table in stage.tables()
        }
        return [
            [[header_part({**header, "full": True}), *(part for file in each.files for part in _of(file, tables))]]
            for header, each in zip(headers, self._saved, strict=True)
        ]

    # Chains.

    def _chain(self, task: Task) -> Sequence[bytes]:
        self._restored = None
        header, _ = read(super()._chain(task))
        if self.obstacle:
            raise _Inseparable(self.obstacle)
        tables: dict[str, list[bytes]] = {}
        if self._restored is not None:
            chain, inherited, fragments = self._restored
            for stage in chain.stages:
                was, now = (each["stages"].get(stage.name, {}) for each in (inherited, header))
                if stage.loaders() and decode(encode(was)) != now:
                    raise _Inseparable(f"the state of operator {stage.name!r} changes with its options")
            for group in sorted(fragments):
                for name, pieces in fragments[group].items():
                    tables.setdefault(name, []).extend(pieces)
        parts = [table_part(UNDIVIDED, tables)] if tables else []
        return [header_part({**header, "full": False}), *parts]

    def _share(self, task: Task, saved: Saved, fresh: dict[str, Any]) -> Share:
        header = header_part({**self._headers[saved.task.index], "full": True})
        share = super()._share(task, replace(saved, files=((header,),)), fresh)
        divides = not all(self._same_parallelism(name) for name in task.operators if name in self._had)
        chain = self._plan.subtask_chain(task.index)
        tables = {table.name: table for stage in chain.stages for table in stage.tables()}
        fragments: Fragments = {}
        for name, fragment in ((name, each) for file in saved.files for part in file for name, each in _each(part)):
            table = tables.get(name)
            if table is not None:
                parts = divided(fragment, table.groups_of) if divides else {UNDIVIDED: fragment}
                for group, part in parts.items():
                    fragments.setdefault(group, {}).setdefault(name, []).append(part)
        return replace(share, fragments=fragments)

    def _gather(
        self, stage: Stage, name: str, place: int, own: Sequence[Share], same: bool, fragments: Fragments
    ) -> None:
        if own and stage.loaders():
            self._check(stage, own, same)
        super()._gather(stage, name, place, own, same, fragments)

    def _check(self, stage: Stage, own: Sequence[Share], same: bool) -> None:
        """Check that the changes in a stage's tables can be loaded after the state that was converted before."""
        tables = stage.tables()
        timelines = any(isinstance(table, Timelines) for table in tables)
        separable = timelines or stage.merge_rules() is not None
        if not separable or stage.kind == SUPPRESS:
            raise _Inseparable(f"the state of operator {stage.name!r} cannot be divided")
        headers = [self._headers[share.saved.task.index]["stages"].get(stage.name, {}) for share in own]
        for share, header in zip(own, headers, strict=True):
            if _options(header) != _options(share.header["stages"].get(stage.name, {})):
                raise _Inseparable(f"the state of operator {stage.name!r} changes with its options")
        differ = any("floors" in header or header.get("mark") != headers[0].get("mark") for header in headers)
        if timelines and differ and not same:  # a snapshot does not list the entries that are over
            raise _Inseparable(f"the tasks of operator {stage.name!r} have reached different watermarks")

    def _restore(self, chain: FusedChain, header: dict[str, Any], fragments: Fragments) -> None:
        """Restore only rows, which may have to be settled, and timers, which may be refused."""
        self._restored = chain, header, fragments
        names = {
            table.name
            for stage in chain.stages
            for table in stage.tables()
            if isinstance(stage, RowStage) or isinstance(table, TimerTable)
        }
        few = {
            group: {name: several for name, several in tables.items() if name in names}
            for group, tables in fragments.items()
        }
        super()._restore(chain, header, few)


def _header(saved: Saved) -> dict[str, Any]:
    return read(saved.files[-1])[0]


def _last_header(earlier: Rescaling, saved: Saved) -> tuple[bytes, ...]:
    """Return the file of a task that has written nothing since the earlier checkpoint."""
    subtasks = earlier._topology.subtasks_of(saved.task.index)
    if len(subtasks) > 1:
        raise _Inseparable(f"{saved.task.name} has written nothing since then")
    return (header_part({**_header(earlier._saved[subtasks[0].index]), "full": False}),)


def _each(part: bytes) -> list[tuple[str, bytes]]:
    """Return the fragments of a part with the names of their tables."""
    return [(name, fragment) for name, fragments in read_part(part)[1].items() for fragment in fragments]


def _of(file: Sequence[bytes], names: Collection[str]) -> Iterator[bytes]:
    """Yield the parts of a snapshot without its header, with these tables only."""
    for part in file:
        tables = {name: fragments for name, fragments in read_part(part)[1].items() if name in names}
        if tables:
            yield table_part(UNDIVIDED, tables)


def _options(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's header, without the ages of its declared states, which are the same in every version."""
    states = {name: (label, shape, age and age[0]) for name, (label, shape, age) in header.get("states", {}).items()}
    return {**header, "states": states}
