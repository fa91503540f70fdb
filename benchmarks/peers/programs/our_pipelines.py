"""The workloads as pipelines of this project: `--set workload=NAME --set place=DIR` chooses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.checked_sink import CheckedTallySink
from benchmarks.peers.programs.ordinary import pipelines
from operators import Operator, Pipeline
from operators.sinks import KafkaSink, SqliteSink
from operators.sources import GeneratedSource, KafkaSource, SequenceSource


class RowSource(SequenceSource):
    """The rows of *count*; the table is made when a partition is opened, before its first record enters."""

    def open(self, partition: int, context: Any) -> Any:
        inputs.table()
        return super().open(partition, context)


class DocumentSource(SequenceSource):
    """(number, text) of every second document from the partition's own on, read before the first record enters."""

    def __init__(self, corpus: Path, documents: int) -> None:
        super().__init__(self.texts, documents // inputs.PARTITIONS, inputs.PARTITIONS)
        self._corpus, self._documents = corpus, documents
        self._texts: list[str] = []

    def open(self, partition: int, context: Any) -> Any:
        self._texts = inputs.documents(self._corpus, self._documents)
        return super().open(partition, context)

    def texts(self, partition: int, start: int, stop: int) -> list[tuple[int, str]]:
        """Return documents `start` to `stop` of a partition."""
        numbers = range(start * inputs.PARTITIONS + partition, stop * inputs.PARTITIONS, inputs.PARTITIONS)
        return [(number, self._texts[number]) for number in numbers]


class Index(Operator):
    """Keeps the posting list of each word; each (word, document) is one change record."""

    def process(self, record: Any, ctx: Any) -> Iterator[tuple[str, tuple[int, int]]]:
        term, document, places = record
        state = ctx.state
        state[document] = places
        occurrences = state["occurrences"] = state.get("occurrences", 0) + len(places)
        yield term, (len(state) - 1, occurrences)


class Number(Operator):
    """Says the how-manieth of its key each number is."""

    def process(self, record: int, ctx: Any) -> Iterator[tuple[int, int]]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield record, n


def _number(partition: int, i: int) -> int:
    return i * inputs.PARTITIONS + partition


def _add_count(pipeline: Pipeline, place: Path, asked: dict[str, Any]) -> None:
    rows = RowSource(inputs.rows, asked["records"] // inputs.PARTITIONS, inputs.PARTITIONS)
    stream = pipeline.source("rows", rows, inputs.PARTITIONS).key_by(lambda row: row[0])
    stream.count("count", parallelism=inputs.PARTITIONS).sink(
        "out", CheckedTallySink(place, lambda: inputs.Tally(place))
    )


def _add_index(pipeline: Pipeline, place: Path, asked: dict[str, Any]) -> None:
    documents = DocumentSource(Path(asked["corpus"]), asked["records"])
    stream = pipeline.source("documents", documents, inputs.PARTITIONS).flat_map("words", lambda d: inputs.words(*d))
    index = stream.key_by(lambda record: record[0]).process("index", Index(), parallelism=inputs.PARTITIONS)
    index.sink("out", CheckedTallySink(place, lambda: inputs.Tally(place, sums=False)))


def _add_failover(pipeline: Pipeline, place: Path, asked: dict[str, Any]) -> None:
    count = asked["records"] // inputs.PARTITIONS
    numbers = pipeline.source(
        "numbers", GeneratedSource(_number, count, inputs.PARTITIONS, asked["rate"]), inputs.PARTITIONS
    )
    keyed = numbers.key_by(lambda number: number % inputs.KEYS)
    keyed.process("count", Number(), parallelism=inputs.PARTITIONS).sink("out", SqliteSink(place / "out.db"))


def _add_kafka(pipeline: Pipeline, place: Path, asked: dict[str, Any]) -> None:
    events = pipeline.source("events", KafkaSource(asked["servers"], asked["topic"]), inputs.PARTITIONS)
    counts = events.key_by(lambda event: event["key"]).count("count", parallelism=inputs.PARTITIONS)
    counts.sink("out", KafkaSink(asked["servers"], asked["output"], key=lambda row: row[0]))


pipeline = Pipeline("peers")
_place, _workload = Path(pipeline.settings["place"]), pipeline.settings["workload"]
_asked = inputs.asked(_place)
_OWN = {"count": _add_count, "index": _add_index, "failover": _add_failover, "kafka": _add_kafka}
if _workload in _OWN:
    _OWN[_workload](pipeline, _place, _asked)
else:
    pipelines.built(pipeline, _workload, _asked["records"]).sink("out", pipelines.sink(_workload, _place))
