"""The state of one key in the files of a checkpoint, read without the code of the pipeline.

The headers of snapshots say what operators are, and the types of their declared states. That is enough for the state
that `process`, `count` and `reduce` keep by key. `as_of` (`operators.queries.inspection`) reads all other state, with a
chain that the code of the pipeline builds, and the state of these operators in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.errors import CorruptData
from causal.snapshot_files import SnapshotFile
from causal.storage.files import each_part
from operators.records.keys import key_group
from operators.records.seconds import seconds_of
from operators.state.keyed_tables import KeyedTable
from operators.state.lists import ListTable
from operators.state.maps import MapTable
from operators.state.snapshot_parts import cell_in, group_of_part, read_part
from operators.state.values import ValueTable

_PROCESS, _ACCUMULATING = "process", ("count", "reduce")
_TIMERS = ("timers", "event-timers")
_SPECULATIVE = "speculative"
"""A part of the meaning of operators whose state includes what later records may still change."""
_TABLES: Mapping[str, type[KeyedTable]] = {
    "a value": ValueTable,
    "a fold": ValueTable,
    "a list": ListTable,
    "a map": MapTable,
}
"""The table of a declared state by its label in the header."""

Shown = Callable[[Any], Any]


class NeedsCode(Exception):
    """The state can only be read with the code of the pipeline."""


class StoredState:
    """The files of one task in a checkpoint.

    Args:
        operator: the operator whose state is read.

    Raises:
        NeedsCode: the operator is of another kind, or shares its task with other subtasks.
        CorruptData: a file is missing, or is not the file that the checkpoint names.
    """

    def __init__(self, job: Path, files: Sequence[SnapshotFile], operator: str, key_groups: int) -> None:
        self._job = job
        self._files = files
        self._operator = operator
        self._key_groups = key_groups
        self._header: Mapping[str, Any] = {}
        for parts in self._snapshots(files[-1:]):
            for part in parts:
                header, _ = read_part(part)
                if header is not None:
                    self._header = header
                    break
        kinds = self._header.get("kinds", {})
        self._kind = kinds.get(operator, "")
        parts_of_it = [name for name in kinds if name.startswith(f"{operator}.")]
        meaning = self._header.get("meanings", {}).get(operator, "")
        if self._kind not in (_PROCESS, *_ACCUMULATING) or parts_of_it or _SPECULATIVE in meaning:
            raise NeedsCode

    @property
    def keyed(self) -> bool:
        """Whether the operator follows key_by."""
        return self._operator not in self._header["keyless"]

    def get(self, key: Any) -> dict[str, Any]:
        """Return the state of a key by table, in the form of `causal.ports.Chain.inspect`.

        Raises:
            NeedsCode: the operator has a table of another kind.
            CorruptData: a file is missing, or is not the file that the checkpoint names.
        """
        tables = self._tables()
        wanted = (None, key_group(key, self._key_groups))
        for parts in self._snapshots(self._files):
            for part in parts:
                if group_of_part(part) not in wanted:
                    continue
                header, content = read_part(part)
                if header is not None and header["full"]:
                    for table, _ in tables.values():
                        table.clear()
                for name, fragments in content.items():
                    if name in tables:
                        for fragment in fragments:
                            tables[name][0].load(fragment)
                    elif name.partition(":")[0] == self._operator:
                        raise NeedsCode
        contents = {name: (table.values.get(key), shown) for name, (table, shown) in tables.items()}
        if self._kind != _PROCESS:
            return {name: shown(value) for name, (value, shown) in contents.items() if value is not None}
        return {
            _short(name, self._operator): shown(value)
            for name, (value, shown) in contents.items()
            if value is not None and not (shown in _WITHOUT_EMPTY and not value)
        }

    def _tables(self) -> dict[str, tuple[KeyedTable, Shown]]:
        """Return the empty tables of the operator by name, and how their values are shown."""
        operator, key_groups = self._operator, self._key_groups
        of_key = _keyed_state if self._kind == _PROCESS else _same
        tables: dict[str, tuple[KeyedTable, Shown]] = {operator: (KeyedTable(operator, operator, key_groups), of_key)}
        if self._kind == _PROCESS:
            for name, (label, shape, _) in self._header["stages"].get(operator, {}).get("states", {}).items():
                table = _TABLES[label](f"{operator}:{name}", operator, key_groups)
                tables[table.name] = table, _state(label, _by_shape(shape))
            for name in _TIMERS:
                table = KeyedTable(f"{operator}:{name}", operator, key_groups)
                tables[table.name] = table, _timers
        for table, _ in tables.values():
            table.of_one_group = True
        return tables

    def _snapshots(self, files: Sequence[SnapshotFile]) -> Iterator[Iterator[bytes]]:
        """Yield the parts of each snapshot, after those of the core."""
        for path, _, digest in files:
            parts = each_part(self._job / path, digest)
            if next(parts, None) is None:
                raise CorruptData(f"{path} does not contain the parts of a snapshot")
            yield self._without_cells(parts)

    def _without_cells(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            if cell_in(part) is not None:
                raise NeedsCode
            yield part


def by_table(tables: Mapping[str, Any], operator: str) -> dict[str, Any]:
    """Return the state by table, without the operator's name in the table names."""
    return {_short(name, operator): value for name, value in tables.items()}


def _short(table: str, operator: str) -> str:
    if table == operator:
        return "state"
    return table[len(operator) + 1 :] if table.startswith((f"{operator}:", f"{operator}.")) else table


def _same(value: Any) -> Any:
    return value


def _keyed_state(state: Mapping[str, Any]) -> Any:
    return state


def _timers(names: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: seconds_of(at_ns) for name, (at_ns, _) in names.items()}


_WITHOUT_EMPTY = (_keyed_state, _timers)
"""The functions that show `ctx.state` and timers; without content, neither is shown."""


def _state(label: str, shown: Shown) -> Shown:
    """Return how a declared state is shown, whose values, items or entries are shown by `shown`."""
    if label == "a list":
        return lambda items: list(map(shown, items))
    if label == "a map":
        return lambda entries: {entry: shown(value) for entry, value in entries.items()}
    return shown


def _by_shape(shape: Any) -> Shown:
    """Return how a value that was written with a shape is shown (`operators.state.schema`).

    Raises:
        NeedsCode: the shape has a form of a later version.
    """
    if type(shape) is not list:
        return _same
    form, *rest = shape
    if form == "record":
        fields = [(name, _by_shape(of)) for name, of in rest[0]]
        return lambda written: {name: shown(value) for (name, shown), value in zip(fields, written, strict=True)}
    if form in ("list", "tuple", "dict"):
        item = _by_shape(rest[0])
        if form == "dict":
            return lambda written: {key: item(value) for key, value in written.items()}
        kind: Callable[[Any], Any] = list if form == "list" else tuple
        return lambda written: kind(map(item, written))
    if form == "optional":
        inner = _by_shape(rest[0])
        return lambda written: None if written is None else inner(written)
    raise NeedsCode
