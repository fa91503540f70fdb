"""Operators that fork, and what they leave behind: children of a task that is killed, and files at the end of a job.

Children outlive the task, and keep nothing that its successor needs.  What waits to be written to a file is written.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Start

PIPELINE = """
import multiprocessing
import os
import time

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import held_generated


def sleep():
    with open("children", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(600)


class Forks(Operator):
    def open(self, ctx):
        self.forked = False

    def process(self, record, ctx):
        if not self.forked:
            self.forked = True
            multiprocessing.get_context("fork").Process(target=sleep, daemon=True).start()
        yield record


pipeline = Pipeline("forks")
rows = held_generated(pipeline.settings["gate"], lambda p, i: {"i": i}, count=1500, rate=300)
pipeline.source("rows", rows).process("forks", Forks()).sink("out", JsonLinesSink("out"))
"""


NOTES = """
import gzip
import os

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource


class Notes(Operator):
    def open(self, ctx):
        self.file, self.packed = open("notes", "w"), gzip.open("notes.gz", "wt")

    def process(self, record, ctx):
        if record == 50:
            if os.fork() == 0:
                raise ValueError("it is a child")
            os.wait()
        for file in (self.file, self.packed):
            file.write(f"{record}\\n")
        yield record


pipeline = Pipeline("notes")
rows = pipeline.source("rows", GeneratedSource(lambda p, i: i, count=100))
rows.process("notes", Notes()).sink("out", JsonLinesSink("out"))
"""


def test_files_that_an_operator_leaves_open_are_written_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    start(tmp_path / "notes.py").finish_well()
    rows = "".join(f"{i}\n" for i in range(100))
    assert (tmp_path / "notes").read_text() == rows
    assert gzip.decompress((tmp_path / "notes.gz").read_bytes()).decode() == rows


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Path]:
    """The file in which children note who they are; they are ended at last."""
    noted = tmp_path / "children"
    yield noted
    for pid in noted.read_text().split() if noted.exists() else ():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_children_of_a_killed_task_hold_up_nothing(start: Start, tmp_path: Path, children: Path) -> None:
    (tmp_path / "forks.py").write_text(PIPELINE)
    gate = tmp_path / "gate"
    job = start(tmp_path / "forks.py", "--set", f"gate={gate}", "--checkpoint-interval", "0.3")
    job.until_warm(records=100)
    for kills in range(3):

        def sleep(view: dict[str, Any], kills: int = kills) -> bool:
            return len(children.read_text().split()) > kills

        job.until(f"{kills + 1} children sleep", sleep)
        job.replace("out/0", "forks/0") if separate(job.view()) else job.replace("out/0")
    gate.touch()
    job.finish_well()
    [file] = (tmp_path / "out").glob("*.jsonl")
    assert [json.loads(line)["i"] for line in file.read_text().splitlines()] == list(range(1500))


def separate(view: dict[str, list[dict[str, str]]] | None) -> bool:
    """Return whether operator and sink run in tasks of their own."""
    assert view is not None
    return any(task["task"] == "forks/0" for task in view["tasks"])
