"""The same events through Spark: written as files of JSON lines, read by Spark Structured Streaming as they lie there.

python -m examples.nexmark.spark_input DIRECTORY EVENTS FILES [SETTING=VALUE]...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.nexmark.batch import FIELDS, write_events
from examples.nexmark.check import events_told
from examples.nexmark.events import Event
from operators.sources import SparkSource

_LONG_AGO_S = 1_000_000_000


def spark_source(directory: str) -> SparkSource:
    """Every file of the directory, one per micro-batch, in one partition, so that events keep their order."""

    def read(spark: Any) -> Any:
        columns = dict(column.split() for fields in FIELDS.values() for column in fields.split(", "))
        schema = ", ".join(["kind string", *(f"{name} {kind}" for name, kind in columns.items())])
        files = spark.readStream.format("json").schema(schema).option("maxFilesPerTrigger", 1)
        return files.load(directory).coalesce(1)

    return SparkSource(read, partitions=1, available_now=True, trigger="0 seconds")


def clean(row: dict[str, Any]) -> Event:
    """An event out of a row that has the columns of all kinds: those of other kinds are null."""
    return {name: value for name, value in row.items() if value is not None}


def write_files(events: Sequence[Event], directory: Path, files: int) -> None:
    """So many files, which Spark takes in the order of their times of change."""
    directory.mkdir(parents=True, exist_ok=True)
    step = -(-len(events) // files)
    for number in range(files):
        path = directory / f"events-{number:04d}.json"
        write_events(list(events[number * step : (number + 1) * step]), path)
        os.utime(path, (_LONG_AGO_S + number, _LONG_AGO_S + number))


def main(arguments: Sequence[str]) -> int:
    """Write the files."""
    if len(arguments) < 3 or not all("=" in told for told in arguments[3:]):
        print(
            "usage: python -m examples.nexmark.spark_input DIRECTORY EVENTS FILES [SETTING=VALUE]...", file=sys.stderr
        )
        return 2
    events = events_told(dict(told.split("=", 1) for told in arguments[3:]))
    write_files(events.listed(int(arguments[1])), Path(arguments[0]), int(arguments[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
