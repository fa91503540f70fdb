"""The same events through Spark: written as files of JSON lines, and read by Spark Structured Streaming.

python -m examples.nexmark.spark_input DIRECTORY EVENTS FILES [SETTING=VALUE]...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.nexmark.batch import FIELDS, write_events
from examples.nexmark.check import events_of
from examples.nexmark.events import Event
from operators.sources import SparkSource

_LONG_AGO_S = 1_000_000_000


def spark_source(directory: str) -> SparkSource:
    """Return a source that reads the files of a directory, one per micro-batch, in one partition to keep their
    order.
    """

    def read(spark: Any) -> Any:
        columns = dict(column.split() for fields in FIELDS.values() for column in fields.split(", "))
        schema = ", ".join(["kind string", *(f"{name} {kind}" for name, kind in columns.items())])
        files = spark.readStream.format("json").schema(schema).option("maxFilesPerTrigger", 1)
        return files.load(directory).coalesce(1)

    return SparkSource(read, partitions=1, available_now=True, trigger="0 seconds")


def clean(row: dict[str, Any]) -> Event:
    """Make an event from a row that has the columns of all kinds, leaving out the columns of other kinds, which are
    null.
    """
    return {name: value for name, value in row.items() if value is not None}


def write_files(events: Sequence[Event], directory: Path, files: int) -> None:
    """Write the events to that number of files, which Spark reads in the order of their modification times."""
    directory.mkdir(parents=True, exist_ok=True)
    step = -(-len(events) // files)
    for number in range(files):
        path = directory / f"events-{number:04d}.json"
        write_events(list(events[number * step : (number + 1) * step]), path)
        os.utime(path, (_LONG_AGO_S + number, _LONG_AGO_S + number))


def main(arguments: Sequence[str]) -> int:
    """Write the files."""
    if len(arguments) < 3 or not all("=" in argument for argument in arguments[3:]):
        print(
            "usage: python -m examples.nexmark.spark_input DIRECTORY EVENTS FILES [SETTING=VALUE]...", file=sys.stderr
        )
        return 2
    events = events_of(dict(argument.split("=", 1) for argument in arguments[3:]))
    write_files(events.listed(int(arguments[1])), Path(arguments[0]), int(arguments[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
