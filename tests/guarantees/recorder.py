"""Records a run of `pipelines/recorded.py`: what entered, every row in the order in which a reader saw it, every kill.

The reader is a process of its own that watches the database from before the first row to the end of the job.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from benchmarks.harness.sink_reader import Reader, Seen, reading
from tests.faults.job import Job, wait_for
from tests.guarantees.history import Element, Failed, History, Output

PIPELINE = Path(__file__).resolve().parent / "pipelines" / "recorded.py"
CHANNELS = ("left", "right")


@dataclass
class Recording:
    """A run that is being recorded.

    Args:
        count: elements of each channel; all but the last come at `rate`, which waits for `let_end`.
    """

    job: Job
    reader: Reader
    database: Path
    gate: Path
    count: int
    failures: list[tuple[int, str]] = field(default_factory=list)

    def seen(self) -> int:
        """Return the number of rows that the reader has seen by now."""
        return sum(each.count for each in self.reader.so_far())

    def until_seen(self, more: int) -> None:
        """Wait until the reader has seen so many rows more."""
        wanted = self.seen() + more
        wait_for(f"the reader sees {wanted} rows", lambda: self.seen() >= wanted)

    def fail(self, what: str, act: Callable[[], object]) -> None:
        """Do something that kills processes, and note it."""
        self.failures.append((time.monotonic_ns(), what))
        act()

    def kill(self, *tasks: str) -> None:
        """SIGKILL these tasks at the same moment, and wait until others run in their place."""
        pids = [self.job.pid_of(task) for task in tasks]
        self.fail(f"kill {', '.join(tasks)}", lambda: [kill(pid) for pid in pids])
        self.job.until_replaced(*pids)

    def finish(self) -> dict[str, History]:
        """End the job, and return the record of each operator."""
        self.gate.touch()
        self.job.finish_well()
        seen = self.reader.end()
        there = _there(self.database)
        known = {(each.task, each.first + at): text for each in seen for at, text in enumerate(each.rows)}
        vanished = sum(1 for at, text in known.items() if there.get(at) != text)
        assert known.keys() >= there.keys(), "the reader has not seen all rows"
        return self.histories(seen, vanished)

    def histories(self, seen: list[Seen], vanished: int) -> dict[str, History]:
        """Return the history of each operator: its rows, with all failures by their times, and the number of vanished
        rows.
        """
        moments = sorted(self.failures)
        events: dict[str, list[Output | Failed]] = {"passed": [], "folded": [], "merged": []}
        for each in seen:
            while moments and moments[0][0] < each.at_ns:
                _, what = moments.pop(0)
                for line in events.values():
                    line.append(Failed(what))
            for text in each.rows:
                row: dict[str, Any] = json.loads(text)
                output = Output(row["stage"], row["key"], Element(*row["element"]), row["content"])
                events[row["spec"]].append(output)
        inputs = dict.fromkeys(CHANNELS, self.count)
        return {spec: History(inputs, line, vanished) for spec, line in events.items()}


def _there(database: Path) -> dict[tuple[str, int], str]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT task, position, record FROM output")
        return {(task, position): record for task, position, record in rows}


@contextmanager
def recording(
    start: Callable[..., Job], directory: Path, *arguments: str, count: int = 400, rate: float = 25.0, **config: Any
) -> Iterator[Recording]:
    """Begin a run and its reader; `start` is the fixture of `tests.faults.conftest`."""
    database, gate = directory / "recorded.db", directory / "gate"
    settings = sets(out=database, gate=gate, rate=rate, count=count)
    with reading(database, directory / "seen.jsonl", whole=True) as reader:
        job = start(PIPELINE, *settings, *arguments, config=config or None)
        yield Recording(job, reader, database, gate, count)
