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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import StatelessSinkPartition

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.bytewax_parts import BATCH, PLACE, Reader, Sink, Source, Tallied
from benchmarks.peers.programs.ordinary import flows

LOOK_S = 0.005


class Logged(StatelessSinkPartition[Any]):
    """Rows are visible immediately."""

    def __init__(self) -> None:
        self._seen = inputs.Seen(PLACE)

    def write_batch(self, items: list[Any]) -> None:
        self._seen.add([pair for _, pair in items])


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
    op.output("out", op.stateful_map("count", keyed, _counted), Sink(lambda: Tallied(inputs.Tally(PLACE))))
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
    op.output("out", op.stateful_map("index", words, _indexed), Sink(lambda: Tallied(inputs.Tally(PLACE, sums=False))))
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
    """Return the dataflow of the workload that was asked for; `bytewax.run` calls this in each process."""
    asked = inputs.asked(PLACE)
    own = {"count": _count, "index": _index, "failover": _failover}
    workload = asked["workload"]
    return own[workload](asked) if workload in own else flows.flow(workload, asked["records"])


def _options(place: Path, asked: dict[str, Any]) -> list[str]:
    """Return options of all processes: what else than two processes, one worker each, with recovery, is asked for."""
    options = ["-w", str(asked.get("workers", 1))]
    if asked.get("recovery", True):
        store = place / "recovery"
        store.mkdir()
        subprocess.run([sys.executable, "-m", "bytewax.recovery", store, str(inputs.PARTITIONS)], check=True)
        options += ["-r", str(store), "-s", str(max(1, round(asked["interval_s"]))), "-b", "0"]
    return options


def _run(place: Path, asked: dict[str, Any]) -> dict[str, Any]:
    count = asked.get("processes", inputs.PARTITIONS)
    options = _options(place, asked)
    addresses = ";".join(f"127.0.0.1:{port}" for port in inputs.free_ports(count))
    environment = {**os.environ, "PEER_PLACE": str(place), "PYTHONHASHSEED": "0"}

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bytewax.run", f"{__spec__.name}:flow()", *options]
        member = ["-i", str(number), "-a", addresses] if count > 1 else []
        return subprocess.Popen([*command, *member], env=environment)

    processes = [start(number) for number in range(count)]
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
    recovery = asked.get("recovery", True)
    if recovery:
        shutil.rmtree(place / "recovery")
    outcome |= {"guarantee": "state exactly once, output at least once" if recovery else "none", "per_record": True}
    inputs.finished(place, "bytewax", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
