"""Ray: two actors that count, given batches of 1,000 records by hand; it has no stateful stream, and no guarantee.

*failover*: an actor with unlimited restarts gets SIGKILL; Ray restarts it and repeats its calls, with empty state.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray

from benchmarks.peers.programs import inputs

BATCH = 1000
IN_FLIGHT_MAX = 16
DOCUMENTS_PER_BATCH = 8
PACE_S = 0.005


class Counter:
    """The running count of each key that it owns."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def pid(self) -> int:
        """Return its process."""
        return os.getpid()

    def add(self, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """(key, count) per row."""
        out, counts = [], self._counts
        for key, _ in rows:
            counts[key] = n = counts.get(key, 0) + 1
            out.append((key, n))
        return out

    def number(self, numbers: list[int]) -> list[tuple[int, int]]:
        """(number, count of its key) per number."""
        return [(number, self.add([(number % inputs.KEYS, 0)])[0][1]) for number in numbers]


class Indexer:
    """The posting lists of the words that it owns."""

    def __init__(self) -> None:
        self._documents: dict[str, dict[int, list[int]]] = {}
        self._occurrences: dict[str, int] = {}

    def add(self, postings: list[tuple[str, int, list[int]]]) -> list[tuple[str, tuple[int, int]]]:
        """(word, (documents, occurrences)) per posting."""
        out = []
        for term, document, places in postings:
            documents = self._documents.setdefault(term, {})
            documents[document] = places
            self._occurrences[term] = n = self._occurrences.get(term, 0) + len(places)
            out.append((term, (len(documents), n)))
        return out


def _tokenised(texts: list[tuple[int, str]]) -> list[list[tuple[str, int, list[int]]]]:
    """Return postings of some documents, by the actor that owns the word."""
    owned: list[list[tuple[str, int, list[int]]]] = [[] for _ in range(inputs.PARTITIONS)]
    for number, text in texts:
        for posting in inputs.words(number, text):
            owned[sum(posting[0].encode()) % inputs.PARTITIONS].append(posting)
    return owned


def count(place: Path, asked: dict[str, Any]) -> None:
    """Route rows to the actors; their answers are the output."""
    actors = [ray.remote(Counter).remote() for _ in range(inputs.PARTITIONS)]
    ray.get([actor.pid.remote() for actor in actors])
    inputs.table()
    tally, flight = inputs.Tally(place), list[Any]()
    inputs.began(place)
    buffers: list[list[tuple[int, int]]] = [[] for _ in actors]
    half = asked["records"] // inputs.PARTITIONS
    for start in range(0, half, BATCH):
        for partition in range(inputs.PARTITIONS):
            for row in inputs.rows(partition, start, min(start + BATCH, half)):
                buffers[row[0] % len(actors)].append(row)
        for number, actor in enumerate(actors):
            if len(buffers[number]) >= BATCH:
                flight.append(actor.add.remote(buffers[number]))
                buffers[number] = []
        while len(flight) > IN_FLIGHT_MAX:
            tally.add(ray.get(flight.pop(0)))
    flight += [actor.add.remote(rows) for actor, rows in zip(actors, buffers)]
    for answer in flight:
        tally.add(ray.get(answer))
    tally.write()


def index(place: Path, asked: dict[str, Any]) -> None:
    """Tasks split documents, actors keep the lists."""
    texts = list(enumerate(inputs.documents(Path(asked["corpus"]), asked["records"])))
    actors = [ray.remote(Indexer).remote() for _ in range(inputs.PARTITIONS)]
    split = ray.remote(num_returns=inputs.PARTITIONS, num_cpus=0.5)(_tokenised)
    tally, flight = inputs.Tally(place, sums=False), list[Any]()
    ray.get(split.remote([]))
    inputs.began(place)
    for start in range(0, len(texts), DOCUMENTS_PER_BATCH):
        owned = split.remote(texts[start : start + DOCUMENTS_PER_BATCH])
        flight += [actor.add.remote(part) for actor, part in zip(actors, owned)]
        while len(flight) > IN_FLIGHT_MAX:
            tally.add(ray.get(flight.pop(0)))
    for answer in flight:
        tally.add(ray.get(answer))
    tally.write()


def failover(place: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Return numbers when they are due, to one actor, which is killed."""
    actor = ray.remote(max_restarts=-1, max_task_retries=-1)(Counter).remote()
    pid = ray.get(actor.pid.remote())
    seen, flight = inputs.Seen(place), list[Any]()
    began_s, sent, killed_s = time.time(), 0, None
    while sent < asked["records"] or flight:
        now_s = time.time()
        due = min(asked["records"], int((now_s - began_s) * asked["rate"]))
        if due > sent:
            flight.append(actor.number.remote(list(range(sent, due))))
            sent = due
        if killed_s is None and now_s > began_s + asked["kill_after_s"]:
            killed_s = time.time()
            os.kill(pid, signal.SIGKILL)
        while flight and ray.wait(flight[:1], timeout=0)[0]:
            seen.add(ray.get(flight.pop(0)))
        time.sleep(PACE_S)
    return {"killed_s": killed_s, "killed": "the actor", "killed_keys": None}


def main() -> int:
    """Run one workload."""
    place = Path(sys.argv[2])
    asked = inputs.asked(place)
    ray.init(
        _node_ip_address="127.0.0.1",
        num_cpus=inputs.PARTITIONS,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        _temp_dir=str(place / "ray"),
    )
    outcome: dict[str, Any] = {"guarantee": "none: state is lost with the actor", "per_record": True}
    if asked["workload"] == "failover":
        outcome |= failover(place, asked)
    else:
        {"count": count, "index": index}[asked["workload"]](place, asked)
    ray.shutdown()
    inputs.finished(place, "ray", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
