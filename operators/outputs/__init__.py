"""Readers of sink output: the rows available by task and position, none of which will disappear.

    output = open_output("counts.db")        # or the directory of a JsonLinesSink, ParquetSink or DeltaSink
    output.look()
    for task, end in output.ends(uncovered=False).items(): ...

`operators.spark.format` is the equivalent for Spark: `spark.readStream.format("causal")`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from causal.records.vectors import require_arrow
from operators.outputs.lines import LinesOutput
from operators.outputs.output import Output, Piece
from operators.outputs.sqlite_output import SqliteOutput
from operators.sinks.objects.object_place import RUNS, connected, kind_of, known_runs, shared_url
from operators.sinks.objects.object_reading import ObjectLinesOutput

if TYPE_CHECKING:
    from operators.sinks.lake.lake_sink import LakeSink

__all__ = ["Output", "Piece", "open_output"]

_KAFKA = "kafka://"
_NATS = "nats://"
_SQLITE = b"SQLite format 3\0"
_OF_PARQUET = "_causal"
"""The value of `operators.sinks.parquet.manifest.OURS`, which cannot be imported without pyarrow."""


def open_output(path: str | os.PathLike[str] | LakeSink, options: Mapping[str, Any] | None = None) -> Output:
    """Return a reader for the output at `path`, or at the URL of a shared store; the output itself is not read yet.

    The topic of a `KafkaSink` is `kafka://one:9092,two:9092/topic`, the stream of a `NatsSink`
    `nats://one:4222,two:4222/stream`.

    Args:
        path: a path or URL. Alternatively, an `IcebergSink`, whose catalog is needed to find the rows, or a `DeltaSink`
            with options; they have the same arguments as in the pipeline.
        options: for Kafka and NATS, the options of the client, as for `KafkaSink` and `NatsSink`.
    Raises:
        Unavailable: the shared store does not respond.
        PipelineError: the path contains no sink output that can be read back.
    """
    if not isinstance(path, (str, os.PathLike)):
        return path.output()
    if isinstance(path, str) and path.startswith(_KAFKA):
        servers, _, topic = path.removeprefix(_KAFKA).rpartition("/")
        return _in_kafka(servers, topic, options)
    if isinstance(path, str) and path.startswith(_NATS):
        servers, _, stream = path.removeprefix(_NATS).rpartition("/")
        return _in_nats(servers, stream, options)
    if isinstance(path, str) and (url := shared_url("open_output", path, None)):
        return _in_store(url)
    place = Path(path).absolute()
    wanted = "use the file of a SqliteSink, or the directory of a JsonLinesSink, ParquetSink or DeltaSink"
    if not place.exists():
        raise PipelineError(f"{place} does not exist; {wanted} after its job has started")
    if place.is_dir():
        if (place / RUNS).is_dir() and (runs := os.listdir(place / RUNS)):
            return _of_table(str(place), (place / RUNS / max(runs)).read_text())
        if (place / _OF_PARQUET).is_dir():
            require_arrow("reading Parquet files")
            from operators.sinks.parquet.parquet_reading import ParquetOutput

            return ParquetOutput(place)
        if any(place.glob(".*.journal")):
            return LinesOutput(place)
        raise PipelineError(f"{place} is a directory to which no sink has written; {wanted}")
    with open(place, "rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise PipelineError(f"{place} is not the file of a sink; {wanted}")
    return SqliteOutput(place)


def _in_kafka(servers: str, topic: str, options: Mapping[str, Any] | None) -> Output:
    from operators.outputs.kafka_output import KafkaOutput

    return KafkaOutput(servers, topic, options)


def _in_nats(servers: str, stream: str, options: Mapping[str, Any] | None) -> Output:
    from operators.outputs.nats_output import NatsOutput

    return NatsOutput(servers, stream, options)


def _in_store(url: str) -> Output:
    depot = connected(url)
    runs = known_runs(depot)
    if not runs:
        raise PipelineError(f"{url} has no rows of a sink; use the URL of a sink whose job has started")
    kind = kind_of(depot, runs[-1])
    if kind in ("delta", "iceberg"):
        return _of_table(url, kind)
    if kind != "parquet":
        return ObjectLinesOutput(depot)
    require_arrow("reading Parquet files")
    from operators.sinks.parquet.parquet_reading import ObjectParquetOutput

    return ObjectParquetOutput(depot)


def _of_table(place: str, kind: str) -> Output:
    from operators.sinks.lake.delta_sink import DeltaSink

    if kind != "delta":
        raise PipelineError(f"{place} is an Iceberg table; use open_output(IcebergSink(…)), which names its catalog")
    return DeltaSink(place).output()
