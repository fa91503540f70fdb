"""A job that is changed while it runs: its commands, its rows, and what the rows prove."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in, rows_in
from tests.faults.conftest import Start
from tests.faults.job import Job, ended_of
from tests.faults.test_bad_input import one_line

ELEMENTS = 20_000
"""The elements of each partition, more than there is time for before the gate opens."""
KEYS = 40
LEDGER = """
from pathlib import Path
from examples.hosts.gated import GatedSource
from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

VERSION = 1

class Count(Operator):
    total = ValueState[int](default=0)
    def process(self, record, ctx):
        n = self.total.value = self.total.value + 1
        yield {"key": ctx.key, "n": n, "p": record["p"], "i": record["i"], "version": VERSION, "task": ctx.task,
               "dice": ctx.random.random()}

class Alone(Operator):
    total = ValueState[int](default=0)
    def process(self, record, ctx):
        self.total.value += 1
        yield record

def make(partition, i):
    return {"k": (i * 7 + partition) % KEYS, "p": partition, "i": i}

pipeline = Pipeline("ledger")
settings = pipeline.settings
source = GatedSource(GeneratedSource(make, ELEMENTS, 2, float(settings.get("rate", 300))), Path(settings["gate"]))
numbers = pipeline.source("numbers", source, parallelism=2)
numbers = numbers.process("alone", Alone()) if settings.get("alone") else numbers
if settings.get("asks"):
    numbers = numbers.call("asked", lambda record, key: 0, combine=lambda record, answer: record)
counted = numbers.key_by(lambda record: record["k"]).process("count", Count(), parallelism=2)
counted.sink("out", SqliteSink("out.db"))
""".replace("KEYS", str(KEYS)).replace("ELEMENTS", str(ELEMENTS))
TOOK = re.compile(r"the change took \d+\.\d\d s")

Rows = list[dict[str, Any]]


def text_of(version: int) -> str:
    """Return the code of a version, whose rows name it."""
    return LEDGER.replace("VERSION = 1", f"VERSION = {version}")


class Changing:
    """A job with the pipeline `LEDGER`, which ends once its gate is open.

    Attributes:
        path: the file of its pipeline.
    """

    def __init__(self, start: Start, directory: Path, *arguments: str, interval: str = "0.5") -> None:
        self.directory, self.path, self._gate = directory, directory / "ledger.py", directory / "gate"
        self.path.write_text(LEDGER)
        self.job: Job = start(
            self.path,
            *sets(gate=self._gate),
            "--checkpoint-interval",
            interval,
            *arguments,
            config={"crash_loop_max": 100},
        )

    # -- commands --------------------------------------------------------------------------------------------------

    def command(self, *words: str) -> tuple[int, str, str]:
        """Run a command about the job; returns its status and what it printed."""
        ended = ended_of(self.directory, *words, "--state-dir", str(self.job.state))
        return ended.returncode, ended.stdout, ended.stderr

    def changed(self, *words: str) -> str:
        """Return the one line of a change that must succeed."""
        status, out, err = self.command(*words)
        assert status == 0, f"{err}\n{self.job.log_tails()}"
        assert len(out.splitlines()) == 1 and TOOK.search(out) and not err, (out, err)
        self.job.note_change()
        return out

    def refused(self, *words: str) -> str:
        """Return the one line of a change that must be refused."""
        status, out, err = self.command(*words)
        assert status == 2 and not out, (status, out, err)
        return one_line(err)

    def upgraded(self, version: int, *options: str) -> str:
        """Return the one line of an upgrade to a version of the code."""
        self.path.write_text(text_of(version))
        return self.changed("upgrade", str(self.path), *options)

    # -- rows ------------------------------------------------------------------------------------------------------

    def rows(self) -> Rows:
        return list(records_in(self.directory / "out.db"))

    def count(self) -> int:
        [(count,)] = rows_in(self.directory / "out.db", "SELECT count(*) FROM output")
        return int(count)

    def last(self, count: int = 40) -> Rows:
        return self.rows()[-count:]

    def until_more(self, count: int = 150) -> None:
        """Wait until that many more rows are there, while the job runs."""
        wanted = self.count() + count
        self.job.until(f"{count} more rows are there", lambda view: self.count() >= wanted)

    def versions(self) -> list[int]:
        """Return the versions in the order of their rows; a version that writes after another one is there twice."""
        return [version for version, _ in groupby(row["version"] for row in self.rows())]

    # -- its end ---------------------------------------------------------------------------------------------------

    def let_end(self) -> None:
        """Make the sources emit their remaining records, and end."""
        self._gate.touch()

    def until_checkpoint(self) -> None:
        """Wait until another checkpoint is complete: it removes the files of the version before."""
        view = self.job.view()
        assert view is not None
        complete = view["checkpoint"]["complete"]
        self.job.until("another checkpoint is complete", lambda view: view["checkpoint"]["complete"] > complete)

    def finish(self) -> dict[str, Any]:
        """End the sources; returns the report once every record has exactly one row."""
        self.until_checkpoint()
        self.let_end()
        report = self.job.finish_well()
        self.check()
        return report

    def check(self) -> None:
        """Assert that each element has one row, and that the rows of each key are numbered in their order."""
        rows = self.rows()
        assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p in range(2) for i in range(ELEMENTS)]
        numbers: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            numbers[row["key"]].append(row["n"])
        assert len(numbers) == KEYS
        for each in numbers.values():
            assert each == list(range(1, len(each) + 1))
