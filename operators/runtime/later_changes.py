"""Conversion of what has changed since a savepoint that was converted before.

The fragments that the old tasks have written since the savepoint are passed on unchanged, or divided by key group. A
new task that has loaded its first snapshot and then its increment has the state that the conversion of the later
checkpoint would give it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from causal.errors import CausalError
from causal.topology import Task
from operators.kinds.tables.readers import SUPPRESS, keeps_rows
from operators.kinds.tables.unsettled import RowStage
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Fragments, Rescaling, read
from operators.runtime.unchanged_state import Inseparable, UnchangedState, header_of, only
from operators.state.fragments import divided
from operators.state.keyed_tables import UNDIVIDED, KeyedTable
from operators.state.snapshot_parts import header_part, read_part, table_part

_OF_ONE_VALUE = frozenset(("table", "aggregate_table", "window_table", "aggregate"))
_OF_TABLES = _OF_ONE_VALUE | {"table_join", SUPPRESS}
"""The kinds of operators that keep rows, each of which is derived from one value of their state or from several."""


def later_changes(earlier: Rescaling, saved: Sequence[Saved]) -> tuple[Rescaling, Mapping[str, Sequence[bytes]]] | str:
    """Convert what has changed since the savepoint that `earlier` has converted.

    Args:
        earlier: its method `chains` must have been called.
        saved: the tasks at a later checkpoint, each with its files that contain changes after the savepoint; merged
            files may also contain changes before it.

    Returns: the conversion of the later checkpoint, for its cuts, and for each task of the new plan the parts of an
    increment that follow the cut; or the reason why everything must be converted again.
    """
    if earlier.obstacle:
        return earlier.obstacle
    try:
        changes = _LaterChanges(earlier, saved)
        return changes, changes.chains()
    except (CausalError, Inseparable) as problem:
        return str(problem)


class _LaterChanges(UnchangedState):
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
        if any(read(file)[0]["full"] for each in self._saved for file in each.files):
            raise Inseparable("a task has written a complete snapshot since then")

    def _row_files(self) -> Sequence[Sequence[Sequence[bytes]]]:
        """Return the changes in tables of rows as if they were all rows; each row is settled on its own."""
        kinds = {name: kind for each in self._saved for name, kind in header_of(each).get("kinds", {}).items()}
        known = {name: kind for name, kind in kinds.items() if kind in _OF_TABLES}
        rows = {node.name: node.kind for node in self._plan.operators if keeps_rows(node)}
        if rows and (known != rows or not _OF_ONE_VALUE.issuperset(rows.values())):
            raise Inseparable("rows of tables depend on state that has not changed")
        tables = {
            table.name
            for task in self._plan.subtasks.tasks
            for stage in self._plan.subtask_chain(task.index).stages
            if isinstance(stage, RowStage)
            for table in stage.tables()
        }
        files = [[list(only(file, tables)) for file in each.files] for each in self._saved]
        for each in files:
            each[0][0] = header_part({**read(each[0])[0], "full": True})
        return files

    def _fragments(self, task: Task, saved: Saved, tables: Mapping[str, KeyedTable]) -> Fragments:
        divides = not all(self._same_parallelism(name) for name in task.operators if name in self._had)
        fragments: Fragments = {}
        for part in (part for file in saved.files for part in only(file, tables)):
            for name, several in read_part(part)[1].items():
                for fragment in several:
                    shares = divided(fragment, tables[name].groups_of) if divides else {UNDIVIDED: fragment}
                    for group, share in shares.items():
                        fragments.setdefault(group, {}).setdefault(name, []).append(share)
        return fragments

    def _parts(self, header: dict[str, Any], fragments: Fragments) -> Sequence[bytes]:
        tables: dict[str, list[bytes]] = {}
        for group in sorted(fragments):
            for name, several in fragments[group].items():
                tables.setdefault(name, []).extend(several)
        return [header_part({**header, "full": False}), *([table_part(UNDIVIDED, tables)] if tables else [])]


def _last_header(earlier: Rescaling, saved: Saved) -> tuple[bytes, ...]:
    """Return the file of a task that has written nothing since the earlier checkpoint."""
    subtasks = earlier._topology.subtasks_of(saved.task.index)
    if len(subtasks) > 1:
        raise Inseparable(f"{saved.task.name} has written nothing since then")
    return (header_part({**header_of(earlier._saved[subtasks[0].index]), "full": False}),)
