"""The format "causal" of Spark: what sinks wrote can be read, and a streaming DataFrame is written to a job.

Spark looks for packages with such a name by itself, so `spark.readStream.format("causal")` needs no registration.
"""

from __future__ import annotations

from typing import Any

from operators.outputs.spark import OutputReader, OutputStreamReader, Reading
from operators.sources.spark_writer import CausalDataSource


class DefaultSource(CausalDataSource):
    """See `operators.outputs.spark` for reading, and `operators.sources.SparkSource`, which is what writes."""

    def schema(self) -> Any:
        """That of the rows that are there; asked for where the user has given none."""
        return Reading.of(self.options).schema()

    def reader(self, schema: Any) -> OutputReader:
        """For `spark.read`."""
        return OutputReader(self.options, schema)

    def streamReader(self, schema: Any) -> OutputStreamReader:
        """For `spark.readStream`."""
        return OutputStreamReader(self.options, schema)
