"""The workloads as PyFlink DataStream jobs; `flink run -py` runs this file, with `PEER_PLACE` in its environment.

The functions tally where they count, and the sink discards: a Python sink would only cost Flink one more crossing
between Java and Python.  *failover* and *paced_index* write with `FileSink`, whose files are there once a checkpoint
has committed them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import (
    CheckpointingMode,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors import FileSink, FileSource, Sink, StreamFormat
from pyflink.datastream.connectors.file_system import RollingPolicy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.java_gateway import get_gateway

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.index_documents import name_of, texts

PAIRS = 1000
UNPACED_S = 0.002


class Parse(MapFunction):
    """Line → (key, value)."""

    def __init__(self, place: str) -> None:
        self._place = Path(place)

    def map(self, value: str) -> tuple[int, int]:
        inputs.began(self._place)
        key, number = value.split(",")
        return int(key), int(number)


class Tallying(KeyedProcessFunction):
    """Puts what it emits into a tally, some at a time."""

    sums = True

    def __init__(self, place: str) -> None:
        self._place = place

    def open(self, runtime_context: Any) -> None:
        self._tally = inputs.Tally(Path(self._place), self.sums)
        self._pairs: list[tuple[Any, Any]] = []

    def note(self, pair: tuple[Any, Any]) -> None:
        """One row goes out."""
        self._pairs.append(pair)
        if len(self._pairs) >= PAIRS:
            self._tally.add(self._pairs)
            self._pairs.clear()

    def close(self) -> None:
        self._tally.add(self._pairs)
        self._tally.write()


class Count(Tallying):
    """Running count."""

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        n = (self._n.value() or 0) + 1
        self._n.update(n)
        self.note((value[0], n))
        yield value[0], n


class Split(FlatMapFunction):
    """Number of a document → its postings."""

    def __init__(self, place: str) -> None:
        self._place = Path(place)

    def open(self, runtime_context: Any) -> None:
        asked = inputs.asked(self._place)
        self._texts = inputs.documents(Path(asked["corpus"]), asked["records"])

    def flat_map(self, value: int) -> Iterator[tuple[str, int, list[int]]]:
        inputs.began(self._place)
        yield from inputs.words(value, self._texts[value])


class Index(Tallying):
    """The posting list of each word, in a map state of documents."""

    sums = False

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        descriptor = MapStateDescriptor("held", Types.INT(), Types.PICKLED_BYTE_ARRAY())
        self._documents = runtime_context.get_map_state(descriptor)
        self._so_far = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        term, document, places = value
        self._documents.put(document, places)
        documents, occurrences = self._so_far.value() or (0, 0)
        so_far = documents + 1, occurrences + len(places)
        self._so_far.update(so_far)
        self.note((term, so_far))
        yield term


class Pace(MapFunction):
    """Number i is due at a fixed time, also after a restart."""

    def __init__(self, place: str, rate: float) -> None:
        self._place, self._rate, self._began_s = place, rate, 0.0

    def map(self, value: int) -> int:
        if not self._began_s:
            began = Path(self._place) / "paced-since"
            if not began.exists():
                began.write_text(repr(time.time()))
            self._began_s = float(began.read_text())
        early_s = self._began_s + value / self._rate - time.time()
        if early_s > UNPACED_S:
            time.sleep(early_s)
        return value


class Number(KeyedProcessFunction):
    """Says the how-manieth of its key each number is."""

    def open(self, runtime_context: Any) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        n = (self._n.value() or 0) + 1
        self._n.update(n)
        yield f"{value} {n}"


class Indexed(KeyedProcessFunction):
    """The posting list of each word, and a change record as JSON for each (word, document)."""

    def open(self, runtime_context: Any) -> None:
        descriptor = MapStateDescriptor("postings", Types.INT(), Types.PICKLED_BYTE_ARRAY())
        self._postings = runtime_context.get_map_state(descriptor)
        self._so_far = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        term, document, places = value
        self._postings.put(document, places)
        documents, occurrences = self._so_far.value() or (0, 0)
        so_far = documents + 1, occurrences + len(places)
        self._so_far.update(so_far)
        row = {"word": term, "document": name_of(document), "positions": places}
        yield json.dumps({**row, "documents": so_far[0], "occurrences": so_far[1]})


class SplitWhole(Split):
    """The same for the documents that are not empty."""

    def open(self, runtime_context: Any) -> None:
        self._texts = texts(inputs.asked(self._place)["records"])


def _discard() -> Sink:
    return Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink())


def _count(flink: StreamExecutionEnvironment, place: Path, asked: dict[str, Any]) -> None:
    paths = sorted(str(path) for path in (place / "csv").iterdir())
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    rows = flink.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
    rows = rows.map(Parse(str(place)), Types.TUPLE([Types.INT(), Types.INT()]))
    counted = rows.key_by(lambda row: row[0], Types.INT()).process(
        Count(str(place)), Types.TUPLE([Types.INT(), Types.LONG()])
    )
    counted.sink_to(_discard())


def _index(flink: StreamExecutionEnvironment, place: Path, asked: dict[str, Any]) -> None:
    numbers = NumberSequenceSource(0, asked["records"] - 1)
    documents = flink.from_source(numbers, WatermarkStrategy.no_watermarks(), "documents")
    posting = Types.TUPLE([Types.STRING(), Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    words = documents.flat_map(Split(str(place)), posting)
    words.key_by(lambda each: each[0], Types.STRING()).process(Index(str(place)), Types.STRING()).sink_to(_discard())


def _failover(flink: StreamExecutionEnvironment, place: Path, asked: dict[str, Any]) -> None:
    flink.set_parallelism(1)
    numbers = NumberSequenceSource(0, asked["records"] - 1)
    stream = flink.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").slot_sharing_group("first")
    paced = stream.map(Pace(str(place), asked["rate"]), Types.LONG()).slot_sharing_group("first")
    keyed = paced.key_by(lambda number: number % inputs.KEYS, Types.LONG())
    counted = keyed.process(Number(), Types.STRING()).name("stateful").slot_sharing_group("second")
    counted.rebalance().sink_to(_committed(place)).slot_sharing_group("third")


def _committed(place: Path) -> Sink:
    files = FileSink.for_row_format(str(place / "out"), Encoder.simple_string_encoder())
    return files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def _paced_index(flink: StreamExecutionEnvironment, place: Path, asked: dict[str, Any]) -> None:
    """One task reads and splits, as many as there are partitions keep the index: the shape of ours."""
    numbers = NumberSequenceSource(0, asked["records"] - 1)
    documents = flink.from_source(numbers, WatermarkStrategy.no_watermarks(), "documents").set_parallelism(1)
    paced = documents.map(Pace(str(place), asked["rate"]), Types.LONG()).set_parallelism(1)
    posting = Types.TUPLE([Types.STRING(), Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    words = paced.flat_map(SplitWhole(str(place)), posting).set_parallelism(1)
    words.key_by(lambda each: each[0], Types.STRING()).process(Indexed(), Types.STRING()).sink_to(_committed(place))


def main() -> None:
    """Submit the workload that was asked for, and wait for its end."""
    place = Path(os.environ["PEER_PLACE"])
    asked = inputs.asked(place)
    flink = StreamExecutionEnvironment.get_execution_environment()
    flink.set_parallelism(inputs.PARTITIONS)
    flink.enable_checkpointing(int(asked["interval_s"] * 1000), CheckpointingMode.EXACTLY_ONCE)
    jobs = {"count": _count, "index": _index, "failover": _failover, "paced_index": _paced_index}
    jobs[asked["workload"]](flink, place, asked)
    flink.execute(asked["workload"])


if __name__ == "__main__":
    main()
