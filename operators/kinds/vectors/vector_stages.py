"""Operators on vectors as stages of a chain: one call per batch, which receives and returns `Vectors`.

An exception in a function that processes a batch stops the job even if failing records become dead letters, because it
cannot be attributed to a single record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from causal.errors import CausalError
from causal.records.vectors import Vectors
from operators.graph import Node
from operators.kinds.vectors.accumulate import accumulate, counted, grouped, unsorted
from operators.kinds.vectors.key_index import column_of
from operators.kinds.vectors.number_table import NumberTable, Values
from operators.records.arrow_rows import Unheld, rows_of
from operators.records.exact_types import exact_array, exact_vectors
from operators.stage.failures import Remedied
from operators.stage.scope import Scope
from operators.stage.stages import OneToOneStage, Stage, apply
from operators.state.keyed_tables import FragmentJob


class VectorStage(Stage):
    """The base class of stages on vectors. It passes batches on unchanged; subclasses override `transform`."""

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)

    def open(self) -> None:
        # Use one thread: with several, the order of the groups in Arrow's `group_by` depends on timing.
        pa.set_cpu_count(1)

    def run(self, records: Any, keys: list[Any] | None) -> Any:
        try:
            return self.transform(records)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)

    def transform(self, vectors: Vectors) -> Any:
        """Return the output for one batch, which must not be empty."""
        return vectors


class MapBatchesStage(VectorStage):
    """`map_batches(name, fn)`, where `fn` returns a record batch, a table, a dict of columns, or None for no output."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._fn: Callable[[pa.RecordBatch], Any] = node.subject

    def transform(self, vectors: Vectors) -> Any:
        result = self._fn(vectors.batch)
        return [] if result is None else exact_vectors(result)


class VectorFilterStage(VectorStage):
    """`filter(name, fn)`, where `fn` returns one boolean per row of the batch; null counts as false."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._fn: Callable[[pa.RecordBatch], Any] = node.subject

    def transform(self, vectors: Vectors) -> Any:
        flags = self._fn(vectors.batch)
        if isinstance(flags, pa.ChunkedArray):
            flags = flags.combine_chunks()
        if not isinstance(flags, pa.Array):
            flags = pa.array(flags)
        if types.is_null(flags.type):
            flags = flags.cast(pa.bool_())
        if not types.is_boolean(flags.type) or len(flags) != len(vectors):
            raise TypeError(
                f"filter returned {len(flags)} values of type {flags.type} for {len(vectors)} rows; return a "
                "boolean for each row"
            )
        return Vectors(vectors.batch.filter(flags))


class KeyedStage(VectorStage):
    """A stage that keeps one number per key and emits, for each row, the key and its current number."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self.key = node.column or ""
        self.table = NumberTable(node.name, scope.config.key_groups)

    def transform(self, vectors: Vectors) -> Any:
        column = column_of(vectors, self.key)
        table, known = self.table, len(self.table)
        slots = table.index.slots_of(column)
        if slots.min() < 0:
            raise ValueError("a key is NaN, which is not equal to itself; pass key_by a column without NaN")
        table.reserve()
        rows = grouped(slots)
        ordered = self.running(vectors, rows, rows.slots < known)
        table.put(rows.slots, ordered[rows.starts + rows.lengths - 1])
        out = unsorted(rows, ordered)
        if types.is_floating(column.type):  # -0.0 and 0.0 are the same key, spelled 0.0
            column = pc.add(column, pa.scalar(0.0, column.type))
        return Vectors(pa.RecordBatch.from_arrays([column, pa.array(out)], names=[self.key, self.value_name]))

    value_name = "count"

    def running(self, vectors: Vectors, rows: Any, known: npt.NDArray[np.bool_]) -> Values:
        """Return the number after each row, in the order of `rows`; `known` marks the groups that already had one."""
        return counted(rows, self.table.values[rows.slots])

    def inspect(self, key: Any) -> dict[str, Any]:
        number = self.table.inspect(key)
        return {} if number is None else {self.table.name: number}

    def kept_keys(self) -> Iterable[Any]:
        return self.table.kept_keys()

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        return {}, [self.table.snapshot(full)]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        if full:
            self.table.clear()

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        return {self.table.name: self.table.load}

    def restored(self) -> None:
        self.table.settle()


_FOLDS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class FoldStage(KeyedStage):
    """`sum`, `min` or `max` of a column, in signed 64-bit integers or 64-bit floats; NaN is never replaced."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._fold = _FOLDS[node.kind]
        self._column: str = node.subject
        self.value_name = node.kind

    def running(self, vectors: Vectors, rows: Any, known: npt.NDArray[np.bool_]) -> Values:
        values = self._numbers(column_of(vectors, self._column))[rows.order]
        return accumulate(self._fold, values, rows, self.table.values[rows.slots], known)

    def _numbers(self, column: pa.Array) -> Values:
        what = f"column {self._column!r}"
        if column.null_count:
            raise ValueError(f"{what} has nulls; filter them out, or fill them in map_batches")
        if types.is_floating(column.type):
            wanted: Any = np.float64
        elif types.is_integer(column.type):
            wanted = np.int64
        else:
            raise TypeError(f"{what} has type {column.type}; {self.value_name} accepts integers and floats")
        numbers = column.to_numpy(zero_copy_only=False)
        if types.is_uint64(column.type) and int(numbers.max()) >= 1 << 63:
            raise OverflowError(f"{what} has a number that exceeds a signed 64-bit integer; cast it to a float")
        table = self.table
        if wanted != table.values.dtype:
            if len(table) and table.values[: len(table)].any():
                raise TypeError(
                    f"{what} has type {column.type}, but its state so far has type {table.values.dtype}; keep one type"
                )
            table.values = table.values.astype(wanted)
        cast: Values = numbers.astype(wanted, copy=False)
        return cast


class NoRow(Remedied, ValueError):
    """Raised for a value that no row can contain."""


class ToRowsStage(VectorStage):
    """`to_rows(name)`, which converts each row to a dict."""

    traces = True

    def transform(self, vectors: Vectors) -> Any:
        try:
            return rows_of(vectors.batch, 0, len(vectors))
        except Unheld as problem:
            raise NoRow(str(problem), "change or drop such values in a map_batches upstream") from None


class ToVectorsStage(OneToOneStage):
    """`to_vectors(name, schema)`, which converts dicts with these columns, or tuples of their values in order."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._schema: pa.Schema = node.subject
        self._names = frozenset(self._schema.names)

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        self._lost = []
        try:
            return self._columns(records)
        except (TypeError, ValueError):
            # Convert one record at a time to find those that fail.
            valid, self._lost = apply(
                lambda record: self._columns([record]) and record,
                records,
                lambda index, problem: self.failed(index, records[index], problem),
            )
            return self._columns(valid) if valid else []

    def _columns(self, records: Sequence[Any]) -> Vectors:
        names = self._schema.names
        if all(type(record) is dict and record.keys() == self._names for record in records):
            columns: Any = [[record[name] for record in records] for name in names]
        elif all(type(record) is tuple and len(record) == len(names) for record in records):
            columns = list(zip(*records, strict=True))
        elif all(type(record) in (dict, tuple) and len(record) == len(names) for record in records):
            columns = list(zip(*map(self._values, records), strict=True))
        else:
            raise TypeError(f"a record is not a dict or tuple of {', '.join(names)}")
        arrays = [exact_array(field.name, field.type, column) for field, column in zip(self._schema, columns)]
        return Vectors(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _values(self, record: Any) -> Any:
        """Return the values of one record in column order."""
        if type(record) is tuple:
            return record
        if record.keys() != self._names:
            raise TypeError(f"a record is not a dict of {', '.join(self._schema.names)}")
        return [record[name] for name in self._schema.names]


def schema_of(schema: Any) -> pa.Schema:
    """Return the pyarrow schema for an argument of `to_vectors`: a schema, or a dict of names and types ("int64").

    Raises:
        NotCarried: vectors cannot have this schema.
        TypeError, ValueError: the argument is not a schema.
    """
    if isinstance(schema, dict):
        fields = [
            pa.field(name, pa.type_for_alias(kind) if isinstance(kind, str) else kind) for name, kind in schema.items()
        ]
        schema = pa.schema(fields)
    if not isinstance(schema, pa.Schema):
        raise TypeError(f'a {type(schema).__name__} is not a schema; use {{"name": "int64", …}} or a pyarrow.Schema')
    return Vectors.of(schema.empty_table()).batch.schema
