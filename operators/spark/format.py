"""Spark's source of a sink's output: `spark.readStream.format("causal").option("path", …)`, and `spark.read`.

An offset is {"run": …, task: next position}. A position always refers to the same row, and rows that may still be
withdrawn are not read (below full sharing depth, until a checkpoint covers them). Rows that Spark's own checkpoint
covers are therefore read exactly once, whichever process dies on either side.

Options:
    path             the file of a SqliteSink, or the directory of a JsonLinesSink or a ParquetSink
    maxRowsPerBatch  the rows of one micro-batch, over all tasks; by default, all existing rows
    records          "columns" (default): the keys of each record are columns, as in the given schema or, without one,
                     in the existing rows; "json": columns task, position, record, where record is a JSON text
    uncovered        "true": include rows that may still be withdrawn; for a job that has ended

If a given schema has columns `_task` and `_position`, they contain each row's task and position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from causal.errors import PipelineError
from operators.outputs import Output, open_output
from operators.spark.columns import columns_of_piece, json_of_piece, sampled
from operators.spark.limits import advanced, checked

RECORDS = ("columns", "json")
_JSON_SCHEMA = "task string, position bigint, record string"
_KNOWN = ("path", "maxrowsperbatch", "records", "uncovered")
PARTITION_ROWS_MAX = 1_000_000
"""The most rows that a task of Spark reads."""


@dataclass(frozen=True)
class Reading:
    """The options of a read, after they have been checked."""

    path: str
    rows_max: int | None
    as_json: bool
    uncovered: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Reading:
        """Check the options and return them.

        Raises:
            PipelineError: an option is missing, unknown or wrong.
        """
        values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in values if name not in _KNOWN)
        if unknown:
            raise PipelineError(
                f'format "causal" has no option {unknown[0]}; the known options are {", ".join(_KNOWN)}'
            )
        if not values.get("path"):
            raise PipelineError(
                'format "causal" needs the option path, which names the file or directory that a sink writes'
            )
        rows = values.get("maxrowsperbatch")
        if rows is not None and (not rows.isdecimal() or not int(rows)):
            raise PipelineError(f"maxRowsPerBatch is {rows!r}; use a number of rows from 1")
        records, uncovered = values.get("records", "columns"), values.get("uncovered", "false").lower()
        if records not in RECORDS:
            raise PipelineError(f"records is {records!r}; use one of {', '.join(RECORDS)}")
        if uncovered not in ("true", "false"):
            raise PipelineError(f"uncovered is {uncovered!r}; use true or false")
        return cls(values["path"], None if rows is None else int(rows), records == "json", uncovered == "true")

    def output(self) -> Output:
        """Return the reader of the output, after it has read the rows that are present now."""
        output = open_output(self.path)
        output.look()
        return output

    def schema(self) -> Any:
        """Return the schema of the existing rows, for a query that does not specify one."""
        if self.as_json:
            return _JSON_SCHEMA
        return from_arrow_schema(sampled(self.output(), self.path, self.uncovered))


class Range(InputPartition):  # type: ignore[misc]
    """The rows of one task, from one position up to another."""

    def __init__(self, run: str, task: str, start: int, stop: int, hint: Any) -> None:
        super().__init__((task, start))
        self.run = run
        self.task = task
        self.start = start
        self.stop = stop
        self.hint = hint


def _ranges(output: Output, start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:
    """Return ranges of rows, ordered by task and position; each range has a limited number of rows."""
    return [
        Range(output.run, task, first, min(first + PARTITION_ROWS_MAX, end[task]), output.hint(task, first))
        for task in sorted(end)
        for first in range(start.get(task, 0), end[task], PARTITION_ROWS_MAX)
    ]


def _batches(reading: Reading, schema: pa.Schema, partition: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition.

    This runs in one of Spark's Python workers, and after a failure runs again with equal results.
    """
    if not isinstance(partition, Range):
        return  # Spark requires at least one partition, even for an empty result
    output = reading.output()
    if output.run != partition.run:
        raise PipelineError(f"{reading.path} was emptied for a new run of its job; restart the query")
    make = json_of_piece if reading.as_json else columns_of_piece
    for piece in output.rows(partition.task, partition.start, partition.stop, partition.hint):
        yield make(partition.task, piece, schema)


class OutputReader(DataSourceReader):  # type: ignore[misc]
    """The reader for `spark.read.format("causal")`, which reads all rows that exist when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._reading = Reading.of(options)
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of rows of each task."""
        output = self._reading.output()
        return _ranges(output, {}, output.ends(self._reading.uncovered))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range."""
        return _batches(self._reading, self._schema, partition)


class OutputStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader for `spark.readStream.format("causal")`, which reads every row once, as it arrives."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._reading = Reading.of(options)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._output: Output | None = None
        self._final: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first row of every task."""
        return {"run": self._looked().run}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the option `maxRowsPerBatch` sets."""
        return ReadAllAvailable() if self._reading.rows_max is None else ReadMaxRows(self._reading.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which a micro-batch that begins at `start` ends."""
        output = self._looked()
        ends = self._ends(output) if self._final is None else self._final
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {"run": output.run, **advanced(self._positions(output, start), ends, rows_max)}

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the offset after the last existing row."""
        output = self._looked()
        return {"run": output.run, **self._ends(output)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query, so that rows that arrive later are not part of it."""
        self._final = self._ends(self._looked())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of rows of each task; `end` may have been determined before a restart of the query."""
        output = self._looked()
        return _ranges(output, self._positions(output, start), self._positions(output, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range."""
        return _batches(self._reading, self._schema, partition)

    def _looked(self) -> Output:
        if self._output is None:
            self._output = open_output(self._reading.path)
        self._output.look()
        return self._output

    def _ends(self, output: Output) -> dict[str, int]:
        return output.ends(self._reading.uncovered)

    def _positions(self, output: Output, offset: dict[str, Any]) -> dict[str, int]:
        return checked(offset, output.run, self._ends(output), self._reading.path)
