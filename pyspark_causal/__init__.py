"""Spark's format "causal", which reads the output of sinks.

Spark automatically finds packages with such names, so `spark.readStream.format("causal")` needs no registration.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from operators.spark.format import OutputReader, OutputStreamReader, Reading


class DefaultSource(DataSource):  # type: ignore[misc]
    """The data source of the format; `operators.spark.format` defines its readers."""

    @classmethod
    def name(cls) -> str:
        return "causal"

    def schema(self) -> Any:
        """Return the schema of the rows that are present, for a user who has not specified a schema."""
        return Reading.of(self.options).schema()

    def reader(self, schema: Any) -> OutputReader:
        """Return the reader for `spark.read`."""
        return OutputReader(self.options, schema)

    def streamReader(self, schema: Any) -> OutputStreamReader:
        """Return the reader for `spark.readStream`."""
        return OutputStreamReader(self.options, schema)
