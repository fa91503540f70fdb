"""The format "causal" of Spark, which reads the output of sinks.

Spark finds packages with such names automatically, so `spark.readStream.format("causal")` needs no registration.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from operators.spark.format import OutputReader, OutputStreamReader, Reading


class DefaultSource(DataSource):  # type: ignore[misc]
    """The data source, whose readers `operators.spark.format` has."""

    @classmethod
    def name(cls) -> str:
        return "causal"

    def schema(self) -> Any:
        """Return the schema of the present rows, for a user who has specified none."""
        return Reading.of(self.options).schema()

    def reader(self, schema: Any) -> OutputReader:
        """Return the reader of `spark.read`."""
        return OutputReader(self.options, schema)

    def streamReader(self, schema: Any) -> OutputStreamReader:
        """Return the reader of `spark.readStream`."""
        return OutputStreamReader(self.options, schema)
