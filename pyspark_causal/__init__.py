"""The format "causal" of Spark: reads what sinks wrote, and writes a streaming DataFrame to a job.

Spark finds packages with such a name by itself, so `spark.readStream.format("causal")` needs no registration.
"""

from __future__ import annotations

from typing import Any

from operators.outputs.spark import OutputReader, OutputStreamReader, Reading
from operators.sources.spark_writer import CausalDataSource


class DefaultSource(CausalDataSource):
    """The data source: `operators.outputs.spark` has the readers, `operators.sources.SparkSource` uses the writer."""

    def schema(self) -> Any:
        """Returns the schema of the rows that are there, for a user who has given none."""
        return Reading.of(self.options).schema()

    def reader(self, schema: Any) -> OutputReader:
        """Returns the reader of `spark.read`."""
        return OutputReader(self.options, schema)

    def streamReader(self, schema: Any) -> OutputStreamReader:
        """Returns the reader of `spark.readStream`."""
        return OutputStreamReader(self.options, schema)
