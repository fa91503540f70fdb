"""Spark Structured Streaming: `transformWithState` (one row out per record), RocksDB state store, as Spark has it.

Micro-batches take what files hold: few large ones for *count*, which is what suits it best.  *failover*: a local
cluster of two executors, one gets SIGKILL; failure detection as fast as its settings allow.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from benchmarks.harness.children import descendants
from benchmarks.peers.programs import inputs

COUNT_FILES, DOCUMENTS_PER_FILE = 2, 50
LIMIT_S, AFTER_S = 90.0, 5.0
BATCHES_BEFORE = 3
COMMIT_LATE_S = 2.0
"""Time after the kill in which what a micro-batch had done may still be listed."""
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FAST_DETECTION = {
    "spark.executor.heartbeatInterval": "500ms",
    "spark.network.timeout": "3s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3000",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.locality.wait": "0",
}


class Count(StatefulProcessor):
    """Running count: (key, n) per record, or (number, n) where the rows carry a number."""

    def __init__(self, column: str) -> None:
        self._column = column

    def init(self, handle: Any) -> None:
        self._n = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n = self._n.get()[0] if self._n.exists() else 0
        for row in rows:
            n += 1
            yield Row(k=row[self._column], n=n)
        self._n.update((n,))

    def close(self) -> None:
        """Nothing is open."""


class Index(StatefulProcessor):
    """The posting list of a word, in a map state of documents."""

    def init(self, handle: Any) -> None:
        self._documents = handle.getMapState("held", "doc int", "places array<int>")
        self._so_far = handle.getValueState("so far", "documents long, occurrences long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        documents, occurrences = self._so_far.get() if self._so_far.exists() else (0, 0)
        for row in rows:
            self._documents.updateValue((row.doc,), (list(row.places),))
            documents, occurrences = documents + 1, occurrences + len(row.places)
            yield Row(word=row.word, documents=documents, occurrences=occurrences)
        self._so_far.update((documents, occurrences))

    def close(self) -> None:
        """Nothing is open."""


class Batches(inputs.Visible):
    """The batches that the file sink lists: from then on their rows can be seen."""

    def __init__(self, out: Path) -> None:
        super().__init__(out / "_spark_metadata", "[0-9]*")

    def rows(self) -> Iterator[tuple[float, str]]:
        """(when it could be seen, line), batch by batch; a compacted list repeats what came before."""
        known: set[str] = set()
        for batch, when_s in sorted(self.since_s.items(), key=lambda each: each[1]):
            for line in Path(batch).read_text().splitlines()[1:]:
                path = json.loads(line)["path"].removeprefix("file://")
                if path not in known:
                    known.add(path)
                    yield from ((when_s, row) for row in Path(path).read_text().splitlines())


def _session(place: Path, apart: bool) -> SparkSession:
    master = f"local-cluster[{inputs.PARTITIONS},1,1024]" if apart else f"local[{inputs.PARTITIONS}]"
    settings = {
        "spark.sql.shuffle.partitions": str(inputs.PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(place / "local"),
        "spark.sql.streaming.stateStore.providerClass": STORE,
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        **(FAST_DETECTION if apart else {}),
    }
    builder = SparkSession.builder.master(master).appName("peer")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _count(spark: SparkSession, place: Path, asked: dict[str, Any]) -> Any:
    rows = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", inputs.PARTITIONS)
    lines = rows.csv(str(place / "csv")).withColumn("v", F.udf(lambda v: v, "int")("v"))
    counted = lines.groupBy("k").transformWithState(Count("k"), "k int, n long", "Append", "None")
    return counted.select(F.concat_ws(" ", "k", "n").alias("value"))


def _index(spark: SparkSession, place: Path, asked: dict[str, Any]) -> Any:
    corpus, records, root = Path(asked["corpus"]), asked["records"], str(place)

    def split(frames: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        texts = inputs.documents(corpus, records)
        inputs.began(Path(root))
        for frame in frames:
            postings = [each for number in frame["value"] for each in inputs.words(int(number), texts[int(number)])]
            yield pd.DataFrame(postings, columns=["word", "doc", "places"])

    numbers = spark.readStream.option("maxFilesPerTrigger", inputs.PARTITIONS).text(str(place / "in"))
    words = numbers.repartition(inputs.PARTITIONS).mapInPandas(split, "word string, doc int, places array<int>")
    schema = "word string, documents long, occurrences long"
    index = words.groupBy("word").transformWithState(Index(), schema, "Append", "None")
    return index.select(F.concat_ws(" ", "word", "documents", "occurrences").alias("value"))


def _failover(spark: SparkSession, place: Path, asked: dict[str, Any]) -> Any:
    paced = spark.readStream.format("rate").option("rowsPerSecond", asked["rate"])
    numbers = paced.option("numPartitions", inputs.PARTITIONS).load()
    keyed = numbers.select((F.col("value") % inputs.KEYS).alias("key"), "value")
    counted = keyed.groupBy("key").transformWithState(Count("value"), "k long, n long", "Append", "None")
    return counted.select(F.concat_ws(" ", "k", "n").alias("value"))


def _write_inputs(place: Path, asked: dict[str, Any]) -> None:
    if asked["workload"] == "count":
        inputs.write_csv(place / "csv", asked["records"], COUNT_FILES)
    elif asked["workload"] == "index":
        (place / "in").mkdir()
        for start in range(0, asked["records"], DOCUMENTS_PER_FILE):
            numbers = range(start, min(start + DOCUMENTS_PER_FILE, asked["records"]))
            (place / "in" / f"{start:06}.txt").write_text("".join(f"{number}\n" for number in numbers))


def _tally(place: Path, batches: Batches) -> dict[str, Any]:
    """Read the output again and tally it, when the clock has stopped."""
    tally = inputs.Tally(place, sums=False)
    for _, line in batches.rows():
        key, *values = line.split(" ")
        numbers = tuple(map(int, values))
        tally.add([(key, numbers[0] if len(numbers) == 1 else numbers)])
        tally.total += numbers[0]
    tally.write()
    return {"last_s": max(batches.since_s.values())}


def _executors(root: int) -> list[int]:
    pids = []
    for pid in descendants(root):
        try:
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
        except OSError:
            continue  # it has ended meanwhile
    return pids


def _killed(place: Path, asked: dict[str, Any], batches: Batches, query: Any) -> dict[str, Any]:
    """Kill an executor; the source has no end: every record due `AFTER_S` after the kill is what has to come out."""
    began_s = time.time()
    while len(batches.since_s) < BATCHES_BEFORE:
        if not query.isActive or time.time() > began_s + LIMIT_S:
            raise RuntimeError(f"no output came: {query.exception()}")
        time.sleep(inputs.LOOK_S)
    time.sleep(asked["kill_after_s"])
    victims = _executors(os.getpid())
    killed_s = time.time()
    os.kill(victims[0], signal.SIGKILL)
    records = int((killed_s + AFTER_S - began_s) * asked["rate"])
    while time.time() < killed_s + LIMIT_S and query.isActive and _reached(batches) < records:
        time.sleep(1.0)
    batches.end()
    query.stop()
    if _reached(batches) < records:
        came = f"{_reached(batches)} of {records} rows came until {LIMIT_S:g} s after the kill"
        raise RuntimeError(f"it falls behind {asked['rate']} records/s: {came}")
    with open(place / "seen-batches.log", "w") as seen:
        for when_s, line in batches.rows():
            if int(line.split()[0]) < records:
                seen.write(f"{when_s:.6f} {line}\n")
    return {
        "killed_s": killed_s,
        "killed": "one of two executors",
        "killed_keys": None,
        "late_s": COMMIT_LATE_S,
        "records": records,
    }


def _reached(batches: Batches) -> int:
    """Return how many rows can be seen."""
    return sum(1 for _ in batches.rows())


def main() -> int:
    """Run one workload."""
    workload, place = sys.argv[1], Path(sys.argv[2])
    asked = inputs.asked(place)
    _write_inputs(place, asked)
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": inputs.java_home()}
    outcome: dict[str, Any] = {"started_s": time.time()}
    spark = _session(place, workload == "failover")
    rows = {"count": _count, "index": _index, "failover": _failover}[workload](spark, place, asked)
    batches = Batches(place / "out")
    batches.start()
    writer = rows.writeStream.outputMode("append").format("text").option("path", str(place / "out"))
    writer = writer.option("checkpointLocation", str(place / "checkpoints"))
    if workload == "failover":
        query = writer.trigger(processingTime=f"{int(asked['interval_s'] * 1000)} milliseconds").start()
        outcome |= _killed(place, asked, batches, query)
    else:
        outcome["first_s"] = time.time()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches.end()
        outcome |= _tally(place, batches)
    outcome |= {"guarantee": "exactly once, visible when a micro-batch ends", "per_record": True}
    inputs.finished(place, "pyspark", outcome)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
