"""Pathway: `pathway spawn`, two processes of one thread (*failover*: one process, which a loop restarts when it dies).

It gives one row per key and commit, not per record.  Persistence is the mode that is free without a licence key: the
input is logged and replayed whole after a failure; its output is then at least once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness.children import descendants
from benchmarks.peers.programs import inputs

COMMIT_MS = {"count": 100, "index": 100, "failover": 20}
FILES = 20
DOCUMENTS_PER_FILE = 50
FEED_S = 0.05
SETTLE_S = 20.0


def _counts(pw: Any, place: Path) -> Any:
    rows = _read(pw, place, k=int, v=int)

    def value(v: int) -> int:
        inputs.began(place)
        return v + 1

    used = rows.select(rows.k, u=pw.apply_with_type(value, int, rows.v))
    counted = used.groupby(used.k).reduce(used.k, n=pw.reducers.count(), s=pw.reducers.sum(used.u))
    return counted.select(counted.k, counted.s, value=counted.n)


def _index(pw: Any, place: Path) -> Any:
    asked = inputs.asked(place)
    texts = inputs.documents(Path(asked["corpus"]), asked["records"])
    numbers = _read(pw, place, k=int)

    def postings(number: int) -> list[tuple[str, str, int]]:
        inputs.began(place)
        terms = inputs.words(number, texts[number])
        return [(term, " ".join(map(str, places)), len(places)) for term, _, places in terms]

    split = pw.apply_with_type(postings, list[tuple[str, str, int]], numbers.k)
    words = numbers.select(d=numbers.k, p=split).flatten(pw.this.p)
    words = words.select(words.d, k=words.p.get(0), places=words.p.get(1), n=words.p.get(2))
    index = words.groupby(words.k).reduce(
        words.k,
        documents=pw.reducers.count(),
        occurrences=pw.reducers.sum(words.n),
        held=pw.reducers.tuple(pw.make_tuple(words.d, words.places)),
    )
    return index.select(index.k, index.held, value=pw.make_tuple(index.documents, index.occurrences))


def _numbered(pw: Any, place: Path) -> Any:
    numbers = _read(pw, place, q=int)
    keyed = numbers.select(numbers.q, k=pw.apply_with_type(lambda q: q % inputs.KEYS, int, numbers.q))
    counted = keyed.groupby(keyed.k).reduce(n=pw.reducers.count(), q=pw.reducers.max(keyed.q))
    return counted.select(k=counted.q, value=counted.n)


def _read(pw: Any, place: Path, **columns: type) -> Any:
    commit_ms = COMMIT_MS[inputs.asked(place)["workload"]]
    schema = pw.schema_from_types(**columns)
    source = str(place / "in")
    return pw.io.csv.read(source, schema=schema, mode="streaming", autocommit_duration_ms=commit_ms, name="in")


def job(place: Path) -> None:
    """The dataflow, in each of the processes."""
    import pathway as pw

    asked = inputs.asked(place)
    workload = asked["workload"]
    build = {"count": _counts, "index": _index, "failover": _numbered}[workload]
    rows = build(pw, place)
    tally, seen = inputs.Tally(place, sums=False), inputs.Seen(place)
    pairs: list[tuple[Any, Any]] = []
    counted = {"sum": 0}

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if workload != "failover":
            amount = row["value"] if workload == "count" else row["value"][0]
            counted["sum"] += amount if is_addition else -amount
        if is_addition:
            pairs.append((row["k"], row["value"]))

    def on_time_end(time: int) -> None:
        if workload == "failover":
            seen.add(pairs)
        else:
            tally.add(pairs)
        pairs.clear()
        if workload != "failover" and counted["sum"] >= asked["wanted"]:
            tally.write()
            inputs.put(place / "done.json", True)

    pw.io.subscribe(rows, on_change=on_change, on_time_end=on_time_end)
    store = pw.persistence.Backend.filesystem(str(place / "store"))
    kept = pw.persistence.Config(store, snapshot_interval_ms=int(asked["interval_s"] * 1000))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=kept)


class Feed:
    """Files in the directory that is read, each whole or not there."""

    def __init__(self, place: Path) -> None:
        self._place, self._files, self.first = place, 0, 0
        (place / "in").mkdir()

    def put(self, column: str, values: Iterable[Any]) -> None:
        """One more file."""
        fresh = self._place / "fresh.csv"
        fresh.write_text(column + "\n" + "".join(f"{value}\n" for value in values))
        os.replace(fresh, self._place / "in" / f"{self._files:07}.csv")
        self._files += 1

    def pace(self, records: int, rate: float) -> None:
        """Numbers when they are due, in a file every `FEED_S`; `first` of them are there already."""
        began_s, fed = time.time(), self.first
        while fed < records:
            due = min(records, int((time.time() - began_s) * rate))
            if due > fed:
                self.put("q", range(fed, due))
                fed = due
            time.sleep(FEED_S)


def start(place: Path, processes: int, port: int) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that all of it can be ended."""
    command = [str(Path(sys.executable).with_name("pathway")), "spawn", "--processes", str(processes), "--threads", "1"]
    job_of = [sys.executable, "-m", __spec__.name, "--job", str(place)]
    return subprocess.Popen([*command, "--first-port", str(port), *job_of], start_new_session=True)


def _batch(place: Path, asked: dict[str, Any], feed: Feed) -> dict[str, Any]:
    if asked["workload"] == "count":
        for path in inputs.write_csv(place / "csv", asked["records"], FILES):
            feed.put("k,v", path.read_text().splitlines())
        wanted = asked["records"]
    else:
        for begin in range(0, asked["records"], DOCUMENTS_PER_FILE):
            feed.put("k", range(begin, min(begin + DOCUMENTS_PER_FILE, asked["records"])))
        texts = inputs.documents(Path(asked["corpus"]), asked["records"])
        wanted = sum(len(inputs.words(number, text)) for number, text in enumerate(texts))
    inputs.put(place / "asked.json", asked | {"wanted": wanted})
    started_s = time.time()
    running = start(place, inputs.PARTITIONS, 20000 + os.getpid() % 20000)
    while not (place / "done.json").exists():
        if running.poll() is not None:
            raise RuntimeError(f"pathway ended with status {running.returncode} before all was counted")
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    return {"started_s": started_s}


def _seen_bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.glob("seen-*.log"))


def _failover(place: Path, asked: dict[str, Any], feed: Feed) -> dict[str, Any]:
    port = 20000 + os.getpid() % 20000
    running = start(place, 1, port)
    feed.first = 1
    feed.put("q", [0])  # the clock of the others runs from the moment when it is up
    while not _seen_bytes(place):
        if running.poll() is not None:
            raise RuntimeError(f"pathway ended with status {running.returncode} before its first output")
        time.sleep(0.005)
    feeding = threading.Thread(target=feed.pace, args=(asked["records"], asked["rate"]))
    feeding.start()
    time.sleep(asked["kill_after_s"])
    victim = descendants(running.pid)[-1]
    killed_s = time.time()
    os.kill(victim, signal.SIGKILL)
    running.wait()
    running = start(place, 1, port)
    feeding.join()
    size, since_s = -1, time.time()
    while time.time() < since_s + SETTLE_S and (_seen_bytes(place) != size or time.time() < since_s + 3):
        size = _seen_bytes(place)
        time.sleep(2.0)
    os.killpg(running.pid, signal.SIGKILL)
    return {"killed_s": killed_s, "killed": "its only process", "killed_keys": None}


def main() -> int:
    """Run one workload."""
    if sys.argv[1] == "--job":
        job(Path(sys.argv[2]))
        return 0
    place = Path(sys.argv[2])
    asked, feed = inputs.asked(place), Feed(place)
    outcome = (_failover if asked["workload"] == "failover" else _batch)(place, asked, feed)
    outcome |= {"guarantee": "input logged and replayed, output at least once", "per_record": False}
    inputs.finished(place, "pathway", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
