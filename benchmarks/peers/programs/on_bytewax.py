"""Bytewax: two processes of one worker each, recovery store with a snapshot every second, or as asked.

Its output is at least once: what was written after the last snapshot is written again.  Nothing restarts a
process that died but the user: here a loop that looks every 5 ms, as a shell or an init system would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.peers.programs import inputs

PLACE = Path(os.environ.get("PEER_PLACE", "."))
BATCH = 1000
LOOK_S = 0.005


class Reader(StatefulSourcePartition[Any, int]):
    """Slices of a partition, as fast as they are taken or each element when it is due."""

    def __init__(self, read: Any, count: int, position: int, batch: int, interval_s: float, began_s: float) -> None:
        self._read, self._count, self._position, self._batch = read, count, position, batch
        self._interval_s, self._began_s = interval_s, began_s

    def next_batch(self) -> Iterable[Any]:
        inputs.began(PLACE)
        if self._position >= self._count:
            raise StopIteration
        stop = min(self._position + self._batch, self._count)
        if self._interval_s:
            stop = min(stop, int((time.time() - self._began_s) / self._interval_s) + 1)
        start, self._position = self._position, max(stop, self._position)
        return self._read(start, self._position)

    def next_awake(self) -> datetime | None:
        if not self._interval_s:
            return None
        due_s = self._began_s + self._position * self._interval_s
        return datetime.fromtimestamp(max(due_s, time.time() + 0.002), timezone.utc)  # noqa: UP017

    def snapshot(self) -> int:
        return self._position


class Source(FixedPartitionedSource[Any, int]):
    """Two partitions."""

    def __init__(self, open_one: Any) -> None:
        self._open = open_one

    def list_parts(self) -> list[str]:
        return [str(partition) for partition in range(inputs.PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Reader:
        return self._open(int(for_part), resume_state or 0)


class Tallied(StatelessSinkPartition[Any]):
    """Tallies what it is given."""

    def __init__(self, sums: bool) -> None:
        self._tally = inputs.Tally(PLACE, sums)

    def write_batch(self, items: list[Any]) -> None:
        self._tally.add(items)

    def close(self) -> None:
        self._tally.write()


class Logged(StatelessSinkPartition[Any]):
    """Rows are visible at once."""

    def __init__(self) -> None:
        self._seen = inputs.Seen(PLACE)

    def write_batch(self, items: list[Any]) -> None:
        self._seen.add([pair for _, pair in items])


class Sink(DynamicSink[Any]):
    """One partition per worker."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        return self._make()


def _counted(n: int | None, value: int) -> tuple[int, int]:
    n = (n or 0) + 1
    return n, n


def _numbered(n: int | None, number: int) -> tuple[int, tuple[int, int]]:
    n = (n or 0) + 1
    return n, (number, n)


def _indexed(state: Any, posting: tuple[int, list[int]]) -> tuple[Any, tuple[int, int]]:
    documents: dict[int, list[int]]
    occurrences, documents = state or (0, {})
    document, places = posting
    documents[document] = places
    occurrences += len(places)
    return (occurrences, documents), (len(documents), occurrences)


def _count(asked: dict[str, Any]) -> Dataflow:
    inputs.table()
    half = asked["records"] // inputs.PARTITIONS

    def reader(part: int, position: int) -> Reader:
        return Reader(lambda a, b: inputs.rows(part, a, b), half, position, BATCH, 0.0, 0.0)

    flow = Dataflow("count")
    keyed = op.map("key", op.input("in", flow, Source(reader)), lambda row: (str(row[0]), row[1]))
    op.output("out", op.stateful_map("count", keyed, _counted), Sink(lambda: Tallied(sums=True)))
    return flow


def _index(asked: dict[str, Any]) -> Dataflow:
    texts = inputs.documents(Path(asked["corpus"]), asked["records"])

    def reader(part: int, position: int) -> Reader:
        own = list(enumerate(texts))[part :: inputs.PARTITIONS]
        return Reader(lambda a, b: own[a:b], len(own), position, 1, 0.0, 0.0)

    def postings(document: tuple[int, str]) -> Sequence[tuple[str, tuple[int, list[int]]]]:
        return [(term, (number, places)) for term, number, places in inputs.words(*document)]

    flow = Dataflow("index")
    words = op.flat_map("words", op.input("in", flow, Source(reader)), postings)
    op.output("out", op.stateful_map("index", words, _indexed), Sink(lambda: Tallied(sums=False)))
    return flow


def _failover(asked: dict[str, Any]) -> Dataflow:
    interval_s = inputs.PARTITIONS / asked["rate"]
    half = asked["records"] // inputs.PARTITIONS

    def reader(part: int, position: int) -> Reader:
        def numbers(start: int, stop: int) -> range:
            return range(start * inputs.PARTITIONS + part, stop * inputs.PARTITIONS + part, inputs.PARTITIONS)

        return Reader(numbers, half, position, BATCH, interval_s, asked["began_s"])

    flow = Dataflow("failover")
    numbers = op.input("in", flow, Source(reader))
    keyed = op.map("key", numbers, lambda number: (str(number % inputs.KEYS), number))
    op.output("out", op.stateful_map("count", keyed, _numbered), Sink(Logged))
    return flow


def flow() -> Dataflow:
    """The dataflow of the workload that was asked for; `bytewax.run` calls this in each process."""
    asked = inputs.asked(PLACE)
    return {"count": _count, "index": _index, "failover": _failover}[asked["workload"]](asked)


def _run(place: Path, asked: dict[str, Any]) -> dict[str, Any]:
    store = place / "recovery"
    store.mkdir()
    subprocess.run([sys.executable, "-m", "bytewax.recovery", store, str(inputs.PARTITIONS)], check=True)
    addresses = ";".join(f"127.0.0.1:{port}" for port in inputs.free_ports(inputs.PARTITIONS))
    environment = {**os.environ, "PEER_PLACE": str(place), "PYTHONHASHSEED": "0"}

    def start(number: int) -> subprocess.Popen[bytes]:
        snapshots = ["-r", str(store), "-s", str(max(1, round(asked["interval_s"]))), "-b", "0"]
        command = [sys.executable, "-m", "bytewax.run", f"{__spec__.name}:flow()", "-i", str(number), "-a", addresses]
        return subprocess.Popen([*command, *snapshots], env=environment)

    processes = [start(number) for number in range(inputs.PARTITIONS)]
    killed_s, kill_s = None, asked["began_s"] + asked.get("kill_after_s", 0.0)
    while any(process.poll() is None for process in processes):
        if asked["workload"] == "failover" and killed_s is None and time.time() > kill_s:
            killed_s = time.time()
            processes[-1].kill()
        for number, process in enumerate(processes):
            if process.poll():
                if killed_s is None:
                    raise RuntimeError(f"bytewax ended with status {process.returncode}")
                processes[number] = start(number)
        time.sleep(LOOK_S)
    return {"killed_s": killed_s, "killed": "one of the two processes", "killed_keys": None}


def main() -> int:
    """Run one workload."""
    place = Path(sys.argv[2])
    asked = inputs.asked(place) | {"began_s": time.time() + 2.0}
    inputs.put(place / "asked.json", asked)
    outcome = _run(place, asked)
    shutil.rmtree(place / "recovery")
    outcome |= {"guarantee": "state exactly once, output at least once", "per_record": True}
    inputs.finished(place, "bytewax", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
