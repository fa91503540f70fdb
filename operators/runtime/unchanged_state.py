"""Conversion of a savepoint whose state has the same encoding and meaning in the version that continues.

The fragments that the old tasks have written are passed on as they are; only headers are converted, by the same steps
as in `rescaling`. The time that this takes hardly depends on the number of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from causal.records.values import decode, encode
from causal.topology import Task, Topology
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan
from operators.kinds.joins.timelines import Timelines
from operators.kinds.tables.readers import SUPPRESS
from operators.kinds.tables.unsettled import RowStage
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Fragments, Rescaling, Share, operator_of, read
from operators.runtime.sent_rows import Written
from operators.stage.stages import Stage
from operators.state.keyed_tables import KeyedTable
from operators.state.merge_rules import BY_PAIR, WHOLE
from operators.state.merging import merged_parts
from operators.state.snapshot_parts import header_part, read_part, table_part
from operators.state.timers import TimerTable


def converted(
    before: Topology,
    saved: Sequence[Saved],
    plan: Plan,
    key_groups: int,
    allow_dropped: bool,
    written: Written | None,
) -> tuple[Rescaling, dict[str, Sequence[bytes]]]:
    """Return the conversion of a savepoint, and the parts of each task's first snapshot that follow the cut.

    The arguments and errors are those of `Rescaling`.
    """
    try:
        rescaling: Rescaling = UnchangedState(before, saved, plan, key_groups, allow_dropped, written)
        return rescaling, rescaling.chains()
    except Inseparable:
        rescaling = Rescaling(before, saved, plan, key_groups, allow_dropped, written)
        return rescaling, rescaling.chains()


class Inseparable(Exception):
    """The state cannot be converted without being loaded."""


class UnchangedState(Rescaling):
    """The conversion of a savepoint to the tasks of `plan`, which have the same operators and options.

    Raises:
        Inseparable: the state must be loaded to be converted; raised here or by `chains`.
    """

    _restored: tuple[FusedChain, dict[str, Any], Fragments] | None = None
    """The chain that is being converted, with the header and fragments that it inherits."""

    @cached_property
    def _headers(self) -> list[dict[str, Any]]:
        return [header_of(each) for each in self._saved]

    def _chain(self, task: Task) -> Sequence[bytes]:
        self._restored = None
        parts = super()._chain(task)
        if self.obstacle:
            raise Inseparable(self.obstacle)
        header, _ = read(parts)
        fragments: Fragments = {}
        if self._restored is not None:
            chain, inherited, fragments = self._restored
            for stage in chain.stages:
                was, now = (each["stages"].get(stage.name, {}) for each in (inherited, header))
                if stage.loaders() and decode(encode(was)) != now:
                    raise Inseparable(f"the state of operator {stage.name!r} changes with its options")
        return self._parts(header, fragments)

    def _parts(self, header: dict[str, Any], fragments: Fragments) -> Sequence[bytes]:
        return [header_part(header), *(table_part(group, fragments[group]) for group in sorted(fragments))]

    def _share(self, task: Task, saved: Saved, fresh: dict[str, Any]) -> Share:
        header = header_part({**self._headers[saved.task.index], "full": True})
        share = super()._share(task, replace(saved, files=((header,),)), fresh)
        tables: dict[str, KeyedTable] = {}
        for stage in self._plan.subtask_chain(task.index).stages:
            if operator_of(stage.name, task) in self._had:
                own = {table.name: table for table in stage.tables()}
                others = stage.loaders().keys() - own.keys()
                timed = any(isinstance(table, Timelines) for table in own.values())
                separable = timed or stage.merge_rules() is not None
                if not separable or stage.kind == SUPPRESS or any(_contains(file, others) for file in saved.files):
                    raise Inseparable(f"the state of operator {stage.name!r} cannot be divided")
                tables |= own
        return replace(share, fragments=self._fragments(task, saved, tables))

    def _fragments(self, task: Task, saved: Saved, tables: Mapping[str, KeyedTable]) -> Fragments:
        """Return the fragments of these tables by key group and table."""
        files = [list(only(file, tables)) for file in saved.files]
        if len(files) == 1:
            return read(files[0])[1]
        rules = {name: table.merge_rule or WHOLE + BY_PAIR for name, table in tables.items()}
        return read(merged_parts(files, rules, self._key_groups, complete=True))[1]

    def _gather(
        self, stage: Stage, name: str, place: int, own: Sequence[Share], same: bool, fragments: Fragments
    ) -> None:
        if own and stage.loaders():
            self._check(stage, own, same)
        super()._gather(stage, name, place, own, same, fragments)

    def _check(self, stage: Stage, own: Sequence[Share], same: bool) -> None:
        """Check that the fragments of a stage mean the same in all tasks of the new version."""
        headers = [self._headers[share.saved.task.index]["stages"].get(stage.name, {}) for share in own]
        for share, header in zip(own, headers, strict=True):
            if _options(header) != _options(share.header["stages"].get(stage.name, {})):
                raise Inseparable(f"the state of operator {stage.name!r} changes with its options")
        timed = any(isinstance(table, Timelines) for table in stage.tables())
        differ = any("floors" in header or header.get("mark") != headers[0].get("mark") for header in headers)
        if timed and differ and not same:  # a snapshot does not list the entries that are over
            raise Inseparable(f"the tasks of operator {stage.name!r} have reached different watermarks")

    def _restore(self, chain: FusedChain, header: dict[str, Any], fragments: Fragments) -> None:
        """Restore only rows, which may have to be settled, and timers, which may be refused or numbered again."""
        self._restored = chain, header, fragments
        names = {table.name for stage in chain.stages for table in stage.tables() if isinstance(table, TimerTable)}
        for stage in chain.stages:
            if isinstance(stage, RowStage):
                names.update(table.name for table in (stage.tables() if self._written else [stage.unsettled]))
        few = {
            group: {name: several for name, several in tables.items() if name in names}
            for group, tables in fragments.items()
        }
        super()._restore(chain, header, few)


def header_of(saved: Saved) -> dict[str, Any]:
    """Return the header of a task's last file."""
    return read(saved.files[-1])[0]


def only(file: Sequence[bytes], names: Collection[str]) -> Iterator[bytes]:
    """Yield the header of a snapshot, and its parts with these tables only."""
    for part in file:
        header, tables = read_part(part)
        if header is not None:
            yield part
        elif kept := {name: fragments for name, fragments in tables.items() if name in names}:
            yield table_part(decode(part)[1], kept)


def _contains(file: Sequence[bytes], names: Collection[str]) -> bool:
    return bool(names) and any(name in read_part(part)[1] for part in file for name in names)


def _options(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's header, without the ages of its declared states, which are the same in every version."""
    states = {name: (label, shape, age and age[0]) for name, (label, shape, age) in header.get("states", {}).items()}
    return {**header, "states": states}
